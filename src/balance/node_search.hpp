// Stage 2 of the hierarchy: chunks to nodes, with little inbound traffic and room for the loads.
#pragma once

#include <cstdint>
#include <vector>

#include "balance/budget.hpp"
#include "balance/instance.hpp"
#include "balance/node_traffic.hpp"

namespace flashmask::balancing {

/// What every node may hold.
struct NodeLimits {
  std::vector<std::int64_t> counts;      ///< chunks of each node, exact
  std::vector<std::int64_t> capacities;  ///< normalised load of each node, aimed at
  std::vector<std::int64_t> ranks;       ///< of each node
  std::int64_t largest = 0;              ///< normalised load that the fastest rank may hold
};

/// Node of every chunk. Starts with consecutive chunks on every node and swaps runs of 1 to 12 chunks under threshold
/// acceptance (integers only, so every machine decides alike). `typical` is the inbound traffic of a plan that ignores
/// nodes; it sets the scale of the thresholds.
std::vector<std::int32_t> search_nodes(const Instance& instance, std::span<const NeedSets> needs,
                                       const NodeLimits& limits, std::int64_t typical, std::uint64_t seed,
                                       Budget& budget);

}  // namespace flashmask::balancing
