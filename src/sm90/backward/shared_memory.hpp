// The shared memory of the main kernel, and what its words mean.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sm90/backward/config.hpp"
#include "sm90/backward/work_list.hpp"

namespace flashmask::sm90::backward_pass {

/// What the loader tells the other roles about one tile, beside its data.
struct TileWord {
  std::int32_t row;      ///< first row of the tile
  std::uint32_t flags;   ///< TileFlag
  std::int32_t list;     ///< flat (batch, mask head, column block): where the column intervals are
  std::int32_t dq_tile;  ///< flat (batch, query head, row tile)
};

namespace tile_flag {
inline constexpr std::uint32_t partial = 1;
inline constexpr std::uint32_t first = 2;      ///< of its work block: dK and dV start from nothing
inline constexpr std::uint32_t last = 4;       ///< of its work block: dK and dV are complete afterwards
inline constexpr std::uint32_t odd_block = 8;  ///< its work block is the CTA's second, fourth, ...
inline constexpr std::uint32_t odd_pair = 16;  ///< its pair of work blocks is the CTA's second, fourth, ...
inline constexpr std::uint32_t end = 32;       ///< no tile: there is no more work
}  // namespace tile_flag

/// Which of the two buffers, taken in turn by successive work blocks, a tile's block has.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t buffer_of(std::uint32_t flags) {
  return (flags & tile_flag::odd_block) != 0 ? 1U : 0U;
}
/// Parity of the phase of that buffer's barriers in which the block's data stand in it.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t parity_of(std::uint32_t flags) {
  return (flags & tile_flag::odd_pair) != 0 ? 1U : 0U;
}
/// The flags of all tiles of the CTA's work block number `block`.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t block_flags(std::uint32_t block) {
  return (block % 2 != 0 ? tile_flag::odd_block : 0U) | ((block / 2 & 1U) != 0 ? tile_flag::odd_pair : 0U);
}

/// The next Q and dO tiles, and the next work block's K and V, arrive while this one is being worked on.
template <BackwardConfig C>
struct SharedMemory {
  static constexpr std::uint32_t stages = 2;
  static constexpr std::uint32_t word_slots = 4;  ///< the dQ warpgroup may be two tiles behind the loader's two

  alignas(1024) std::uint8_t k[stages][C.tile_bytes(block_columns)];
  alignas(1024) std::uint8_t v[stages][C.tile_bytes(block_columns)];
  alignas(1024) std::uint8_t q[stages][C.tile_bytes(block_rows)];
  alignas(1024) std::uint8_t dout[stages][C.tile_bytes(block_rows)];
  /// dS of both column warpgroups, [warpgroup][row][column], K-major for dQ.
  alignas(1024) std::uint8_t ds[stages][2][block_rows * layout::row_bytes];
  alignas(16) float stats[stages][2][block_rows];
  alignas(16) TileWord words[word_slots];
  alignas(16) WorkBlock work[stages];  ///< the block being worked on and the next

  // Barriers. full: the loader's copies have landed. empty: every reader is done. ds: between columns and dQ.
  alignas(8) std::uint64_t full_work[stages];
  std::uint64_t full_k[stages], empty_k[stages];
  std::uint64_t full_v[stages];
  std::uint64_t empty_work[stages];  ///< V of the block is free then, too
  std::uint64_t full_q[stages], empty_q[stages];
  std::uint64_t full_dout[stages], empty_dout[stages];
  std::uint64_t full_ds[stages], empty_ds[stages];
  std::int32_t tiles[stages];  ///< of the block in the work slot, where blocks are swept
};

inline constexpr std::uint32_t column_warps = 8;
inline constexpr std::uint32_t dq_warps = 4;
/// What a block may use on sm_90.
inline constexpr std::size_t shared_memory_limit = 232448;

}  // namespace flashmask::sm90::backward_pass
