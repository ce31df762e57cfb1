// Which column block comes next, and which row tiles it has: heaviest first, drawn from a counter.
#pragma once

#include <cstdint>

#include "sm90/backward/config.hpp"
#include "sm90/backward/parameters.hpp"
#include "sm90/backward/shared_memory.hpp"

namespace flashmask::sm90::backward_pass {

/// Number of work blocks of a call.
FLASHMASK_HOST_DEVICE inline std::int32_t work_items(const Extents& e) {
  return e.batch * e.kv_heads * e.column_blocks;
}

/// Maps an item number to its block. Phases of falling cost over all heads, so that the last blocks of the whole call
/// are its lightest; in a phase sections of heads, in a section the blocks in the given order, heads fastest: the CTAs
/// at work at one time share Q, dO and dQ of few heads.
FLASHMASK_HOST_DEVICE inline WorkBlock work_block(const Extents& e, const ColumnLists& lists, std::int32_t item) {
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
  const std::int32_t phase_blocks = (blocks + lists.phases - 1) / lists.phases;
  const std::int32_t phase = item / (phase_blocks * sharing);
  const std::int32_t first_block = phase * phase_blocks;
  const std::int32_t in_phase = blocks - first_block < phase_blocks ? blocks - first_block : phase_blocks;
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

/// Last query head (inside the group) that sees the block, -1 for none: prepare.cu has written zeros then.
__device__ inline std::int32_t last_head(const Extents& e, const ColumnLists& lists, const WorkBlock& w) {
  for (std::int32_t g = e.group() - 1; g >= 0; --g) {
    if (lists.count[e.list(w.batch, w.kv_head * e.group() + g, w.block)] != 0) return g;
    if (e.mask_heads <= e.kv_heads) break;  // the other heads have the same list
  }
  return -1;
}

/// Draws blocks until one has a tile. `item` is the caller's first item, later ones come from the counter.
__device__ inline WorkBlock next_block(const MainParameters& p, std::int32_t item) {
  const std::int32_t items = work_items(p.extents);
  while (item < items) {
    WorkBlock w = work_block(p.extents, p.lists, item);
    w.last_head = last_head(p.extents, p.lists, w);
    if (w.last_head >= 0) return w;
    item = static_cast<std::int32_t>(gridDim.x + atomicAdd(p.counter, 1U));
  }
  return {0, 0, -1, -1};
}

}  // namespace flashmask::sm90::backward_pass
