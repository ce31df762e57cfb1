// The shared memory of a forward CTA: tiles, queues, and every barrier by name.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sm90/forward/config.hpp"

namespace flashmask::sm90::forward_pass {

/// One block of the row tile in hand, as the index generator hands it to the loader.
struct alignas(16) QueueEntry {
  std::int32_t block;
  std::uint32_t classes;
  std::int32_t bitmap;
  std::int32_t unused;
};

/// Which row tile a queue slot or a Q tile belongs to. `blocks` < 0 ends the kernel.
struct alignas(16) TileHeader {
  std::int32_t row_tile;
  std::int32_t unit;  ///< batch * query_heads + query head
  std::int32_t blocks;
  std::int32_t list;  ///< list of the tile map
};

/// What a consumer needs to know of the block in a K stage.
struct alignas(16) BlockInfo {
  std::uint32_t classes;
  std::int32_t bitmap;
  std::int32_t block;
  std::int32_t unused;
};

template <ForwardConfig C>
struct SharedMemory {
  alignas(1024) std::uint8_t q[C.q_bytes()];
  alignas(1024) std::uint8_t k[C.stages][C.kv_bytes()];
  alignas(1024) std::uint8_t v[C.stages][C.kv_bytes()];
  alignas(1024) std::uint8_t out[C.q_bytes()];  ///< [warp][half][16 rows][128 bytes]

  /// Visibility words of partial blocks without a bitmap, one a consumer thread (bitmap_bit() says what a bit means).
  std::uint64_t visibility[visibility_slots][128 * C.consumers];
  QueueEntry queue[queue_slots][queue_entries];
  TileHeader queue_header[queue_slots];
  TileHeader tile[2];  ///< by tile parity: the epilogue reads it again while the next tile arrives
  BlockInfo block[C.stages];

  // Data arrived (one arrival of the loader plus bytes) / no longer read (one arrival a consumer warp).
  std::uint64_t full_q, empty_q;
  std::uint64_t full_k[C.stages], empty_k[C.stages];
  std::uint64_t full_v[C.stages], empty_v[C.stages];
  // Mask generators (one arrival each) to consumers (one arrival a warp).
  std::uint64_t full_visibility[visibility_slots], empty_visibility[visibility_slots];
  // Index generator (one arrival) to loader and mask generators (one arrival each).
  std::uint64_t full_queue[queue_slots], empty_queue[queue_slots];
};

inline constexpr std::size_t shared_memory_limit = 232448;  ///< 227 KiB, what a CTA may have on sm_90

template <ForwardConfig C>
constexpr std::size_t shared_memory_bytes() {
  static_assert(sizeof(SharedMemory<C>) <= shared_memory_limit, "this configuration does not fit into shared memory");
  return sizeof(SharedMemory<C>);
}

}  // namespace flashmask::sm90::forward_pass
