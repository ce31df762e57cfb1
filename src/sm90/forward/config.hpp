// What a forward kernel is made of; the one template argument of everything in this folder.
#pragma once

#include <cstdint>

#include "flashmask/tile.hpp"
#include "sm90/layout/swizzle.hpp"
#include "sm90/tile_map/rule.hpp"

namespace flashmask::sm90::forward_pass {

enum class Element : std::uint8_t { bf16, f16 };

/// Warps that turn intervals into visibility words, and slots between them and the consumers. Consumers are never more
/// than `stages` blocks apart, which is why a slot needs no more than one arrival a warp.
inline constexpr std::int32_t mask_generators = 2;
inline constexpr std::int32_t visibility_slots = 3;

struct ForwardConfig {
  std::int32_t consumers = 3;   ///< consumer warpgroups, 64 query rows each
  std::int32_t block_n = 80;    ///< key columns of a tile
  std::int32_t head_dim = 128;  ///< 64 or 128; smaller ones are zero-filled on load
  std::int32_t stages = 3;      ///< slots of the K ring and of the V ring
  Element element = Element::bf16;
  bool take_turns = false;        ///< consumer warpgroups issue their products round robin
  bool waits_for_chunks = false;  ///< the loader waits for the chunk a block lies in (context parallelism)
  std::int32_t packed_heads = 1;  ///< query heads of one KV head that share a row tile (MapForm of the map)
  /// Every lane arrives for itself instead of one for its converged warp: what racecheck needs to see an order.
  bool every_lane_arrives = false;

  friend constexpr bool operator==(const ForwardConfig&, const ForwardConfig&) = default;

  [[nodiscard]] constexpr std::int32_t block_m() const { return 64 * consumers; }
  [[nodiscard]] constexpr std::int32_t mask_rows() const { return block_m() / packed_heads; }  ///< of a row tile
  /// Blocks start at multiples of unit() columns, column_units() of them apart.
  [[nodiscard]] constexpr std::int32_t unit() const { return packed_heads > 1 ? unit_columns : block_n; }
  [[nodiscard]] constexpr std::int32_t column_units() const { return block_n / unit(); }
  [[nodiscard]] constexpr std::uint32_t warp_arrivals() const { return every_lane_arrives ? 32 : 1; }
  [[nodiscard]] constexpr std::int32_t threads() const { return 128 * (consumers + 1); }
  [[nodiscard]] constexpr std::int32_t halves() const { return head_dim / 64; }
  /// setmaxnreg budgets: three consumers share 65536 registers as 32 / 160, two as 40 / 232.
  [[nodiscard]] constexpr int producer_registers() const { return consumers == 3 ? 32 : 40; }
  [[nodiscard]] constexpr int consumer_registers() const { return consumers == 3 ? 160 : 232; }

  [[nodiscard]] constexpr std::uint32_t q_bytes() const {
    return layout::tile_bytes(static_cast<std::uint32_t>(block_m()), static_cast<std::uint32_t>(head_dim));
  }
  [[nodiscard]] constexpr std::uint32_t kv_bytes() const {
    return layout::tile_bytes(static_cast<std::uint32_t>(block_n), static_cast<std::uint32_t>(head_dim));
  }
};

template <ForwardConfig C>
constexpr void check_config() {
  static_assert(C.consumers == 2 || C.consumers == 3, "two or three consumer warpgroups");
  static_assert(C.head_dim == 64 || C.head_dim == 128, "head_dim of the kernel is 64 or 128; others are padded");
  static_assert(C.block_n == 64 || C.block_n == 80 || C.block_n == 96 || C.block_n == 128,
                "block_n must be a width for which wgmma.cuh has a form");
  static_assert(C.stages <= visibility_slots, "consumers may drift by `stages` blocks");
  static_assert(C.packed_heads >= 1 && C.packed_heads <= strip_rows && (C.packed_heads & (C.packed_heads - 1)) == 0,
                "packed heads must be a power of two that divides the 16 rows of a warp");
  static_assert(C.block_n % C.unit() == 0, "a block is a whole number of units");
  static_assert(C.stages >= 2, "K(j+1) and V(j) are in flight together");
  static_assert(128 * (C.producer_registers() + C.consumers * C.consumer_registers()) <= 65536,
                "the register budgets exceed the register file: setmaxnreg would wait for ever");
}

/// Blocks in one slot of the queue between index generator and loader, and the number of slots.
inline constexpr std::int32_t queue_entries = 16;
inline constexpr std::int32_t queue_slots = 4;

}  // namespace flashmask::sm90::forward_pass
