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

/// Which of `Buffers` buffers, taken in turn by successive work blocks, a tile's block has.
template <std::int32_t Buffers>
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t buffer_of(std::uint32_t flags) {
  return Buffers == 2 && (flags & tile_flag::odd_block) != 0 ? 1U : 0U;
}
/// Parity of the phase of that buffer's barriers in which the block's data stand in it.
template <std::int32_t Buffers>
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t parity_of(std::uint32_t flags) {
  return (flags & (Buffers == 2 ? tile_flag::odd_pair : tile_flag::odd_block)) != 0 ? 1U : 0U;
}
/// The flags of all tiles of the CTA's work block number `block`.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t block_flags(std::uint32_t block) {
  return (block % 2 != 0 ? tile_flag::odd_block : 0U) | ((block / 2 & 1U) != 0 ? tile_flag::odd_pair : 0U);
}

/// The next Q and dO tiles arrive while this one is being worked on; so do the next work block's K and V, as far as
/// there are two buffers.
///
/// With one buffer, K(n) is block n's until the dQ warpgroup has read it for the last time: empty_k, after the last
/// tile's dS was handed over. So at the border of two blocks the columns issue the last dK alone, hand over dS, and
/// only then wait for K(n + 1) and issue its first S; and the loader, which may wait for empty_k for as long, first
/// issues all that the columns need until then: word, Q, dO, then V(n + 1), then K(n + 1). V(n) is free earlier, after
/// dP of the last tile: empty_v, one arrival a column warp. With one V buffer beside two of K the loader therefore
/// issues K and Q before it waits for empty_v. Who waits for what, t being the last tile of block n:
///
///   loader     empty_q(t - 1) | Q(t + 1) | empty_dout(t - 1) | dO(t + 1) | empty_v(n) | V(n + 1) | empty_k(n) | K(n +
///   1) columns    dP(t), dV(t) | empty_v(n) -> | full_q(t + 1) | dK(t) issued | full_ds(t) -> | dK, dV written |
///              full_k(n + 1) | S(t + 1)
///   dQ         full_ds(t) | dQ(t) | empty_ds(t), empty_k(n) ->
///
/// Every wait is for something whose issue depends on earlier entries only, so nothing can stall.
template <BackwardConfig C>
struct SharedMemory {
  static constexpr std::uint32_t stages = 2;
  static constexpr std::uint32_t word_slots = 4;  ///< the dQ warpgroup may be two tiles behind the loader's two

  alignas(1024) std::uint8_t k[C.key_buffers][C.tile_bytes(block_columns)];
  alignas(1024) std::uint8_t v[C.value_buffers][C.tile_bytes(block_columns)];
  alignas(1024) std::uint8_t q[stages][C.tile_bytes(block_rows)];
  alignas(1024) std::uint8_t dout[stages][C.tile_bytes(block_rows)];
  /// dS of both column warpgroups, [warpgroup][row][column], K-major for dQ.
  alignas(1024) std::uint8_t ds[stages][2][block_rows * layout::row_bytes];
  alignas(16) float stats[stages][2][block_rows];
  alignas(16) TileWord words[word_slots];
  alignas(16) WorkBlock work[stages];  ///< the block being worked on and the next

  // Barriers. full: the loader's copies have landed. empty: every reader is done. ds: between columns and dQ.
  alignas(8) std::uint64_t full_work[stages];
  std::uint64_t full_k[C.key_buffers], empty_k[C.key_buffers];
  std::uint64_t full_v[C.value_buffers];
  std::uint64_t empty_work[stages];  ///< with two V buffers, V of the block is free then, too
  std::uint64_t full_q[stages], empty_q[stages];
  std::uint64_t full_dout[stages], empty_dout[stages];
  std::uint64_t full_ds[stages], empty_ds[stages];
  std::uint64_t empty_v;  ///< with one V buffer
  // With a shared front or a split tail: which tiles of the block in the work slot.
  std::int32_t tiles[stages];
  std::uint32_t start[stages];  ///< head * row_tiles + tile
  std::int32_t part[stages];    ///< Tail::part
};

inline constexpr std::uint32_t column_warps = 8;
inline constexpr std::uint32_t dq_warps = 4;
/// What a block may use on sm_90.
inline constexpr std::size_t shared_memory_limit = 232448;

/// Per cent of an SM's shared memory (228 KB) to ask for where a block has `bytes`, to which the system adds 1 KB. The
/// driver takes the next larger of 100, 132, 164, 196 and 228 KB and leaves the rest of 256 KB as L1 cache; rounded
/// down, because a fraction above 164 or 196 would give the one after.
constexpr int shared_memory_percent(std::size_t bytes) {
  return static_cast<int>((bytes + 1024) * 100 / (std::size_t{228} << 10));
}

}  // namespace flashmask::sm90::backward_pass
