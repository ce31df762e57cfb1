// What one instance of the backward kernel is compiled for, and the numbers that follow from it.
#pragma once

#include <cstdint>

#include "sm90/layout/swizzle.hpp"

namespace flashmask::sm90::backward_pass {

inline constexpr std::int32_t block_rows = 64;      ///< query rows of a tile: 80 spills, 128 does not fit
inline constexpr std::int32_t block_columns = 128;  ///< key columns of a CTA, 64 a column warpgroup
inline constexpr std::int32_t warpgroup_threads = 128;

/// Structural, so that it can be the kernel's one template argument.
struct BackwardConfig {
  std::int32_t head_dim;  ///< of the tiles: 64 or 128; smaller head dims are zero-filled by the tile copies
  bool bf16;              ///< false: fp16
  /// True: dQ leaves as float32 reductions in any order. False (deterministic mode): dQ has a pass of its own and this
  /// kernel computes dK and dV only.
  bool accumulate_dq;
  /// Every lane arrives for itself instead of one for its converged warp: what racecheck needs to see an order.
  bool every_lane_arrives = false;
  /// Two CTAs of a cluster work on 256 neighbouring columns, 128 each, and share every tile of Q and dO; each computes
  /// one half of dQ over all 256 columns, for which they exchange dS: one half of head_dim or, where there is but one,
  /// every second tile. Half the bytes of Q and dO from L2, half the reductions of dQ.
  bool paired = false;

  [[nodiscard]] constexpr std::int32_t ctas() const { return paired ? 2 : 1; }
  /// Key columns of a work block.
  [[nodiscard]] constexpr std::int32_t work_columns() const { return ctas() * block_columns; }

  [[nodiscard]] constexpr std::uint32_t warp_arrivals() const { return every_lane_arrives ? 32 : 1; }
  [[nodiscard]] constexpr std::int32_t halves() const { return head_dim / 64; }
  /// Whether the CTAs of a pair compute dQ of whole tiles in turn, there being one half of head_dim: the first of even
  /// tiles, the second of odd ones.
  [[nodiscard]] constexpr bool alternates() const { return paired && halves() == 1; }
  /// Rows of a tile of Q and dO that a CTA loads: of a pair, for both of them.
  [[nodiscard]] constexpr std::int32_t share_rows() const { return alternates() ? block_rows / 2 : block_rows; }
  /// Bytes of `rows` rows of one head in shared memory.
  [[nodiscard]] constexpr std::uint32_t tile_bytes(std::uint32_t rows) const {
    return layout::tile_bytes(rows, static_cast<std::uint32_t>(head_dim));
  }

  /// Whether the products of the next tile run under the arithmetic of this one (overlapped_columns.cuh): that takes
  /// accumulators of its own for dP, and at head_dim 128 there are no registers left for them.
  [[nodiscard]] constexpr bool overlapped() const { return head_dim == 64; }
  // Buffers. Under the reductions of dQ a copy takes more than 2,000 cycles, so two tiles of Q and dO are not enough,
  // and at head_dim 128 the third leaves room for one V buffer only (docs/backward.md). Overlapped, a tile is held for
  // half as long again. Paired at head_dim 128, the other CTA's K and dS take the room of the second K and the third
  // dO.
  [[nodiscard]] constexpr std::uint32_t key_stages() const { return paired && head_dim == 128 ? 1 : 2; }
  [[nodiscard]] constexpr std::uint32_t value_stages() const { return head_dim == 64 ? 2 : 1; }
  [[nodiscard]] constexpr std::uint32_t row_stages() const { return head_dim == 64 ? 5 : 3; }
  [[nodiscard]] constexpr std::uint32_t dout_stages() const { return paired && head_dim == 128 ? 2 : row_stages(); }
  /// Whether Q and dO have equally many buffers. Then Q's release stands for both: dO of a tile is read before its Q is
  /// released, and loaded after its Q.
  [[nodiscard]] constexpr bool one_ring() const { return dout_stages() == row_stages(); }
  /// Whether a tile's Q, statistics and dO land on one barrier, Q's. Overlapped, S and dP of a tile are issued so
  /// closely after one another that dO alone is never waited for.
  [[nodiscard]] constexpr bool one_arrival() const { return one_ring() && overlapped(); }

  // Roles: warpgroups 0 and 1 own 64 columns each, warpgroup 2 owns dQ, one thread of warpgroup 3 loads. Four whole
  // warpgroups, because each of the SM's four partitions has its own register file.
  [[nodiscard]] static constexpr std::int32_t threads() { return 4 * warpgroup_threads; }
  [[nodiscard]] static constexpr std::int32_t column_registers() { return 208; }
  [[nodiscard]] static constexpr std::int32_t dq_registers() { return 64; }
  [[nodiscard]] static constexpr std::int32_t loader_registers() { return 32; }
  /// Registers a thread at launch: the largest multiple of 8 with which all threads fit the register file.
  [[nodiscard]] static constexpr std::int32_t launch_registers() { return 65536 / threads() / 8 * 8; }

  friend constexpr bool operator==(const BackwardConfig&, const BackwardConfig&) = default;
};

template <BackwardConfig C>
struct CheckedConfig {
  static_assert(C.head_dim == 64 || C.head_dim == 128, "tiles exist for head_dim 64 and 128; pad smaller ones");
  static_assert(!C.paired || C.accumulate_dq, "pairs exchange dS for dQ: the deterministic mode has none here");
  static_assert(2 * C.column_registers() + C.dq_registers() + C.loader_registers() <= 4 * C.launch_registers(),
                "the roles want more registers than the block was launched with: setmaxnreg would wait for ever");
  static constexpr BackwardConfig value = C;
};

}  // namespace flashmask::sm90::backward_pass
