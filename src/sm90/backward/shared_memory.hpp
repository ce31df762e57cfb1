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

/// Which of two buffers (of work slots and, where there are two, of K and V) a tile's block has: successive work blocks
/// take them in turn.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t buffer_of(std::uint32_t flags) {
  return (flags & tile_flag::odd_block) != 0 ? 1U : 0U;
}
/// Parity of the phase of that buffer's barriers in which the block's data stand in it.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t parity_of(std::uint32_t flags) {
  return (flags & tile_flag::odd_pair) != 0 ? 1U : 0U;
}
/// Both of `stages` buffers, one or two.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t buffer_of(std::uint32_t flags, std::uint32_t stages) {
  return stages == 1 ? 0 : buffer_of(flags);
}
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t parity_of(std::uint32_t flags, std::uint32_t stages) {
  return stages == 1 ? buffer_of(flags) : parity_of(flags);
}
/// The flags of all tiles of the CTA's work block number `block`.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t block_flags(std::uint32_t block) {
  return (block % 2 != 0 ? tile_flag::odd_block : 0U) | ((block / 2 & 1U) != 0 ? tile_flag::odd_pair : 0U);
}

/// What a CTA of a pair has of the other one, for the dQ it computes: that half of K's head_dim (of one half alone: all
/// of K), in stages as its own, and dS, of every tile or of every second.
template <BackwardConfig C, bool Paired>
struct PeerTiles {};
template <BackwardConfig C>
struct PeerTiles<C, true> {
  static constexpr std::uint32_t peer_stages = C.alternates() ? 1 : 2;
  alignas(1024) std::uint8_t peer_k[C.key_stages()][block_columns * layout::row_bytes];
  alignas(1024) std::uint8_t peer_ds[peer_stages][2][block_rows * layout::row_bytes];
};
template <bool Paired>
struct PeerWords {};
template <>
struct PeerWords<true> {
  alignas(8) std::uint64_t full_ds[2];  ///< the other CTA's dS has landed
  std::uint32_t fronts[2];              ///< of the block in the work slot: where its sweep begins
};

/// The next Q and dO tiles and the next work block's K arrive while this one is being worked on. V of a block is free
/// after dP of its last tile (empty_v, one arrival a column warp); the loader issues K, Q and dO of the next block's
/// first tile before it waits for that.
template <BackwardConfig C>
struct SharedMemory : PeerTiles<C, C.paired> {
  static constexpr std::uint32_t stages = 2;  ///< of work slots and dS
  static constexpr std::uint32_t key_stages = C.key_stages();
  static constexpr std::uint32_t value_stages = C.value_stages();
  static constexpr std::uint32_t row_stages = C.row_stages();  ///< of Q with its statistics
  static constexpr std::uint32_t dout_stages = C.dout_stages();
  /// A power of two; the dQ warpgroup may be two tiles behind those that the loader has in flight.
  static constexpr std::uint32_t word_slots = 8;
  static_assert(word_slots >= row_stages + 2);

  alignas(1024) std::uint8_t k[key_stages][C.tile_bytes(block_columns)];
  alignas(1024) std::uint8_t v[value_stages][C.tile_bytes(block_columns)];
  alignas(1024) std::uint8_t q[row_stages][C.tile_bytes(block_rows)];
  alignas(1024) std::uint8_t dout[dout_stages][C.tile_bytes(block_rows)];
  /// dS of both column warpgroups, [warpgroup][row][column], K-major for dQ.
  alignas(1024) std::uint8_t ds[stages][2][block_rows * layout::row_bytes];
  alignas(16) float stats[row_stages][2][block_rows];
  alignas(16) TileWord words[word_slots];
  alignas(16) WorkBlock work[stages];  ///< the block being worked on and the next

  // Barriers. full: the loader's copies have landed. empty: every reader is done. ds: between columns and dQ.
  alignas(8) std::uint64_t full_work[stages];
  std::uint64_t full_k[key_stages], empty_k[key_stages];
  std::uint64_t full_v[value_stages], empty_v[value_stages];
  std::uint64_t empty_work[stages];
  std::uint64_t full_q[row_stages], empty_q[row_stages];
  std::uint64_t full_dout[dout_stages], empty_dout[dout_stages];
  std::uint64_t full_ds[stages], empty_ds[stages];
  std::int32_t tiles[stages];  ///< of the block in the work slot
  std::uint32_t begun;         ///< blocks that the loader has begun; here because it is short of registers
  [[no_unique_address]] PeerWords<C.paired> pair;
};

inline constexpr std::uint32_t column_warps = 8;
inline constexpr std::uint32_t dq_warps = 4;
/// What a block may use on sm_90.
inline constexpr std::size_t shared_memory_limit = 232448;

}  // namespace flashmask::sm90::backward_pass
