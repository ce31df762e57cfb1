#include "overlap/layout.hpp"

#include <algorithm>

namespace flashmask::overlap {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

RankSlots slots_of(const Owners& owners, const RankNeeds& needs, std::int32_t rank) {
  RankSlots out;
  for (std::int32_t b = 0; b < needs.batch(); ++b) {
    std::int64_t count = 0;
    for (const auto c : needs.chunks_of(rank, b)) count += owners.rows_of(c);
    out.column_counts.push_back(count);
    out.columns = std::max(out.columns, count);
  }
  for (std::int32_t b = 0; b < needs.batch(); ++b) {
    auto& row_of = out.row_of.emplace_back(at(owners.chunks()), -1);
    std::int64_t next = b * out.columns;
    for (const auto c : needs.chunks_of(rank, b)) {
      row_of[at(c)] = next;
      next += owners.rows_of(c);
    }
  }
  out.rows = needs.batch() * out.columns;
  for (std::int32_t b = 0; b < needs.batch(); ++b) {
    for (const auto c : owners.chunks_of[at(rank)]) {
      if (out.row_of[at(b)][at(c)] >= 0 || needs.ranks_needing(b, c).empty()) continue;
      out.outbox.emplace_back(b, c);
      out.row_of[at(b)][at(c)] = out.rows;
      out.rows += owners.rows_of(c);
    }
  }
  return out;
}

}  // namespace

Layout Layout::build(const Owners& owners, const RankNeeds& needs, const ReduceSchedule& reduce) {
  Layout layout;
  for (std::int32_t r = 0; r < owners.ranks; ++r) {
    layout.slots.push_back(slots_of(owners, needs, r));
    InboundSlots& inbound = layout.inbound.emplace_back();
    for (const auto number : reduce.inbound[at(r)]) {
      inbound.row_of.push_back(inbound.rows);
      inbound.rows += owners.rows_of(reduce.transfers[at(number)].chunk);
    }
    layout.most_inbound = std::max(layout.most_inbound, static_cast<std::int64_t>(inbound.row_of.size()));
  }
  return layout;
}

}  // namespace flashmask::overlap
