// Which row tile of which head a ticket stands for.
#pragma once

#include <cstdint>

#include "sm90/forward/parameters.hpp"
#include "sm90/forward/ticket.hpp"

namespace flashmask::sm90::forward_pass {

struct WorkItem {
  std::int32_t unit;
  std::int32_t row_tile;
  std::int32_t list;
};

__device__ __forceinline__ WorkItem work_item(const ForwardParameters& p, std::int32_t ticket) {
  const std::int32_t lists = p.map.batch * p.map.heads;
  WorkItem item;
  if (lists == 1) {
    const TicketPlace place = place_of(ticket, p.units, p.map.row_tiles, p.units_a_section);
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
