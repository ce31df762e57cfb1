// What crosses which link under an assignment.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

struct TrafficReport {
  std::vector<std::int64_t> inbound;   ///< by node
  std::vector<std::int64_t> outbound;  ///< by node
  Traffic traffic;
};

/// Counts (batch row, chunk) units over all need sets with their weights. `columns` and `chunk` give the rows of the
/// last chunk. Empty vectors without need sets.
TrafficReport count_traffic(std::span<const NeedSets> needs, std::span<const std::int64_t> rank_of, std::int64_t ranks,
                            std::int64_t nodes, std::int64_t columns, std::int64_t chunk);

/// Key rows (over the batch) that each rank holds while it computes: of every mask the chunks its rows need, of the
/// masks the largest. Empty without need sets.
std::vector<std::int64_t> key_rows(const PlanRecord& record);

}  // namespace flashmask::balancing
