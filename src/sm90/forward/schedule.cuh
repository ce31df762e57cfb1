// Which row tile of which head a ticket stands for.
#pragma once

#include <cstdint>

#include "sm90/forward/parameters.hpp"
#include "sm90/forward/ticket.hpp"
#include "sm90/ptx/warp.cuh"

namespace flashmask::sm90::forward_pass {

struct WorkItem {
  std::int32_t unit;
  std::int32_t row_tile;
  std::int32_t list;
};

/// Ranks that go ahead of the sections: an eighth of the row tiles where the next one after them has less than half the
/// blocks of the heaviest. Asked once a CTA by a whole warp; two microseconds that short masks are spared.
__device__ __forceinline__ std::int32_t heavy_ranks(const ForwardParameters& p) {
  if (p.map.batch * p.map.heads != 1 || p.units_a_section >= p.units || p.map.row_tiles < 64) return 0;
  const std::int32_t rank = p.map.row_tiles / 8;
  const auto lane = static_cast<std::int32_t>(ptx::lane_index());
  const std::int32_t list = __ldg(p.map.row_order + (lane < 16 ? 0 : rank));
  const Run* runs = p.map.row_runs + __ldg(p.map.row_run_begin + list);
  const std::int32_t count = __ldg(p.map.row_run_count + list);
  std::int32_t blocks = 0;
  for (std::int32_t i = lane % 16; i < count; i += 16) blocks += runs[i].count;
  const std::int32_t heaviest = __reduce_add_sync(0xFFFFFFFFU, lane < 16 ? blocks : 0);
  const std::int32_t next = __reduce_add_sync(0xFFFFFFFFU, lane < 16 ? 0 : blocks);
  return 2 * next < heaviest ? rank : 0;
}

__device__ __forceinline__ WorkItem work_item(const ForwardParameters& p, std::int32_t ticket, std::int32_t heavy) {
  const std::int32_t lists = p.map.batch * p.map.heads;
  WorkItem item;
  if (lists == 1) {
    const TicketPlace place = place_of(ticket, p.units, p.map.row_tiles, p.units_a_section, heavy);
    item.unit = place.unit;
    item.row_tile = __ldg(p.map.row_order + place.rank);
    item.list = item.row_tile;
    return item;
  }
  // One order over all lists; the query heads that share a list follow one another. A mask of one batch row serves all.
  const std::int32_t batches = p.units / p.query_heads;
  const std::int32_t shared = p.query_heads_per_mask_head * (p.map.batch == 1 ? batches : 1);
  item.list = __ldg(p.map.row_order + ticket / shared);
  const std::int32_t matrix = item.list / p.map.row_tiles;
  item.row_tile = item.list - matrix * p.map.row_tiles;
  const std::int32_t member = ticket % shared;
  const std::int32_t batch = p.map.batch == 1 ? member / p.query_heads_per_mask_head : matrix / p.map.heads;
  item.unit =
      batch * p.query_heads + matrix % p.map.heads * p.query_heads_per_mask_head + member % p.query_heads_per_mask_head;
  return item;
}

}  // namespace flashmask::sm90::forward_pass
