// The order in which a work block's tiles are visited when the CTAs of a head share a front: plain index arithmetic,
// the same on host and device.
//
// CTAs that work on one head drift apart. At 131072 rows, Q, dO and the float32 dQ of a head are 128 MB; the L2 cache
// keeps what was touched lately, so a CTA far from the others reads them from DRAM. So a block's sweep begins where a
// CTA of the same KV head was last, and wraps around. The front is a hint in global memory that all of them overwrite
// without any ordering: whatever it says, every tile is visited once.
#pragma once

#include <cstdint>

#include "sm90/backward/work_list.hpp"

namespace flashmask::sm90::backward_pass {

/// Tiles between two updates of the front.
inline constexpr std::uint32_t front_step = 8;

/// Whether a block of `tiles` tiles moves the front: where it sweeps over a quarter of the group's tiles or more. What
/// shorter sweeps read stays in the cache, and blocks of other documents would only send each other to and fro.
FLASHMASK_HOST_DEVICE constexpr bool moves_front(const Extents& e, std::int32_t tiles) {
  return tiles >= e.group() * e.row_tiles / 4;
}

/// Tiles of a work block: of the lists of all query heads of its group.
FLASHMASK_HOST_DEVICE inline std::int32_t block_tiles(const Extents& e, const ColumnLists& lists, const WorkBlock& w) {
  const bool shared = e.mask_heads <= e.kv_heads;  // all heads of the group have one list
  std::int32_t tiles = 0;
  for (std::int32_t g = 0; g < (shared ? 1 : e.group()); ++g) {
    tiles += list_tiles(lists, e.list(w.batch, w.kv_head * e.group() + g, w.block));
  }
  return shared ? tiles * e.group() : tiles;
}

/// Calls visit(head, tile, partial, left) once for each of the `tiles` tiles of a work block, `left` being how many
/// come after it and `head` counting inside the group, beginning with the first tile at or after `front` and wrapping
/// around after the group's last. `front` is head * row_tiles + tile; values beyond the group mean 0. `Block` is
/// WorkBlock, or volatile and read at every use by who is short of registers; not after the last tile.
template <typename Block, typename Visit>
FLASHMASK_HOST_DEVICE void sweep(const Extents& e, const ColumnLists& lists, const Block& w, std::int32_t tiles,
                                 std::uint32_t front, Visit&& visit) {
  if (tiles == 0) return;
  if (front >= static_cast<std::uint32_t>(e.group() * e.row_tiles)) front = 0;
  std::int32_t head = static_cast<std::int32_t>(front) / e.row_tiles;
  std::int32_t tile = static_cast<std::int32_t>(front) % e.row_tiles;
  std::int32_t list = e.list(w.batch, w.kv_head * e.group() + head, w.block);
  std::int32_t run = lists.begin[list];
  std::int32_t runs = lists.count[list];  // of this head, from `run` on
  while (runs > 0 && lists.runs[run].first + lists.runs[run].count <= tile) ++run, --runs;
  if (runs > 0 && lists.runs[run].first > tile) tile = lists.runs[run].first;
  for (;;) {
    while (runs == 0) {
      head = head + 1 == e.group() ? 0 : head + 1;
      list = e.list(w.batch, w.kv_head * e.group() + head, w.block);
      run = lists.begin[list];
      runs = lists.count[list];
      if (runs > 0) tile = lists.runs[run].first;
    }
    const std::int32_t end = lists.runs[run].first + lists.runs[run].count;
    const bool partial = has_partial(lists.runs[run].classes);
    for (; tile < end; ++tile) {
      visit(head, tile, partial, --tiles);
      if (tiles == 0) return;
    }
    ++run, --runs;
    if (runs > 0) tile = lists.runs[run].first;
  }
}

}  // namespace flashmask::sm90::backward_pass
