// Which column block an item number stands for: plain index arithmetic, the same on host and device.
#pragma once

#include <cstdint>

#include "flashmask/host_device.hpp"
#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90::backward_pass {

/// Extents of one call.
struct Extents {
  std::int32_t batch, rows, columns, query_heads, kv_heads, head_dim;
  std::int32_t mask_batch, mask_heads;    ///< mask_batch is batch, or 1: one mask for every batch row
  std::int32_t row_tiles, column_blocks;  ///< of 64 rows and work_columns columns, rounded up
  std::int32_t work_columns = 128;        ///< of a work block: of one CTA, or of a pair

  /// Query heads that share one KV head.
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t group() const { return query_heads / kv_heads; }
  /// Flat list index of (batch, mask head of a query head, column block).
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t list(std::int32_t b, std::int32_t query_head,
                                                                  std::int32_t block) const {
    const std::int32_t matrix = (mask_batch == 1 ? 0 : b * mask_heads) + query_head / (query_heads / mask_heads);
    return matrix * column_blocks + block;
  }
};

/// The lists of row tiles of every column block and the order in which blocks are taken.
struct ColumnLists {
  const Run* runs;
  const std::int32_t* begin;
  const std::int32_t* count;
  /// Flat list indices (batch, mask head, block), the order of work; nullptr: ascending blocks. Ignored when there are
  /// more mask heads than KV heads, where one work block has a list a query head.
  const std::int32_t* order;
  /// Heads that share a list (of one mask head, and of all batch rows where there is one mask for all) and are worked
  /// on at a time, for the sake of the L2 cache.
  std::int32_t section_heads;
  std::int32_t light_blocks;  ///< blocks at the end of the order that may wait (waiting_blocks())
};

/// One column block of one KV head: everything one visit of the CTA adds to its dK and dV.
struct WorkBlock {
  std::int32_t batch;
  std::int32_t kv_head;
  std::int32_t block;      ///< -1: no more work
  std::int32_t last_head;  ///< last query head of the group whose list is not empty
};

/// Row tiles of a list.
FLASHMASK_HOST_DEVICE inline std::int32_t list_tiles(const ColumnLists& lists, std::int32_t list) {
  const Run* const runs = lists.runs + lists.begin[list];
  std::int32_t tiles = 0;
  for (std::int32_t n = 0; n < lists.count[list]; ++n) tiles += runs[n].count;
  return tiles;
}

/// Whether blocks of `light` tiles are so much lighter than those of `others` that order and choice of tiles care.
FLASHMASK_HOST_DEVICE constexpr bool much_lighter(std::int64_t light, std::int64_t others) {
  return 4 * light < 3 * others;
}

/// How many blocks at the end of the order wait until all heads have had the others: `light_blocks`, or none where they
/// are about as heavy as the first. Those that wait let a call end evenly, but they are of all heads at once, more than
/// the L2 cache keeps.
FLASHMASK_HOST_DEVICE inline std::int32_t waiting_blocks(const Extents& e, const ColumnLists& lists) {
  if (lists.light_blocks == 0 || lists.order == nullptr || e.mask_heads > e.kv_heads) return 0;
  const std::int32_t blocks = e.mask_batch * e.mask_heads * e.column_blocks;
  const std::int32_t heaviest = list_tiles(lists, lists.order[0]);
  const std::int32_t light = list_tiles(lists, lists.order[blocks - lists.light_blocks]);
  return much_lighter(light, heaviest) ? lists.light_blocks : 0;
}

/// Number of work blocks of a call.
FLASHMASK_HOST_DEVICE inline std::int32_t work_items(const Extents& e) {
  return e.batch * e.kv_heads * e.column_blocks;
}

/// Maps an item number to its block. The last `waiting` blocks of the order come when all heads have had the others, so
/// that the last blocks of the whole call are its lightest; of either, sections of heads, in a section the blocks in
/// the given order, heads fastest: the CTAs at work at one time share Q, dO and dQ of few heads.
FLASHMASK_HOST_DEVICE inline WorkBlock work_block(const Extents& e, const ColumnLists& lists, std::int32_t waiting,
                                                  std::int32_t item) {
  WorkBlock w{0, 0, -1, -1};
  const bool ordered = lists.order != nullptr && e.mask_heads <= e.kv_heads;
  if (!ordered) {
    const std::int32_t heads = e.batch * e.kv_heads;
    w.block = item / heads;
    w.batch = item % heads / e.kv_heads;
    w.kv_head = item % e.kv_heads;
    return w;
  }
  // Heads that share a mask matrix: KV heads of one mask head and, where all batch rows have one mask, those of each.
  const std::int32_t kv_sharing = e.kv_heads / e.mask_heads;
  const std::int32_t sharing = kv_sharing * (e.mask_batch == 1 ? e.batch : 1);
  const std::int32_t blocks = e.mask_batch * e.mask_heads * e.column_blocks;
  const bool light = item >= (blocks - waiting) * sharing;
  const std::int32_t first_block = light ? blocks - waiting : 0;
  const std::int32_t in_phase = light ? waiting : blocks - waiting;
  const std::int32_t rest = item - first_block * sharing;
  const std::int32_t section = rest / (in_phase * lists.section_heads);
  const std::int32_t first_head = section * lists.section_heads;
  const std::int32_t heads = sharing - first_head < lists.section_heads ? sharing - first_head : lists.section_heads;
  const std::int32_t inside = rest - in_phase * first_head;
  const std::int32_t list = lists.order[first_block + inside / heads];
  const std::int32_t head = first_head + inside % heads;  // among the sharing ones
  const std::int32_t matrix = list / e.column_blocks;
  w.block = list % e.column_blocks;
  w.batch = e.mask_batch == 1 ? head / kv_sharing : matrix / e.mask_heads;
  w.kv_head = matrix % e.mask_heads * kv_sharing + head % kv_sharing;
  return w;
}

}  // namespace flashmask::sm90::backward_pass
