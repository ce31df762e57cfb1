// Drawing column blocks from the counter of the call.
#pragma once

#include <cstdint>

#include "sm90/backward/config.hpp"
#include "sm90/backward/parameters.hpp"
#include "sm90/backward/shared_memory.hpp"

namespace flashmask::sm90::backward_pass {

/// Last query head (inside the group) that sees the block, -1 for none: prepare.cu has written zeros then.
__device__ inline std::int32_t last_head(const Extents& e, const ColumnLists& lists, const WorkBlock& w) {
  for (std::int32_t g = e.group() - 1; g >= 0; --g) {
    if (lists.count[e.list(w.batch, w.kv_head * e.group() + g, w.block)] != 0) return g;
    if (e.mask_heads <= e.kv_heads) break;  // the other heads have the same list
  }
  return -1;
}

/// Draws blocks until one has a tile. `item` is the caller's first item, of `callers`; later ones come from the
/// counter. `waiting`: see work_block().
__device__ inline WorkBlock next_block(const MainParameters& p, std::int32_t waiting, std::int32_t item,
                                       std::uint32_t callers) {
  const std::int32_t items = work_items(p.extents);
  while (item < items) {
    WorkBlock w = work_block(p.extents, p.lists, waiting, item);
    w.last_head = last_head(p.extents, p.lists, w);
    if (w.last_head >= 0) return w;
    item = static_cast<std::int32_t>(callers + atomicAdd(p.counter, 1U));
  }
  return {0, 0, -1, -1};
}

}  // namespace flashmask::sm90::backward_pass
