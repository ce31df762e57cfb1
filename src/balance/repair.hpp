// The last step of the hierarchy: a node whose ranks cannot all meet the target trades single chunks with other nodes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balance/budget.hpp"
#include "balance/instance.hpp"
#include "balance/node_traffic.hpp"

namespace flashmask::balancing {

/// What a trade may do: `excess` is the load the hot rank must lose, `room` what every node can still take.
struct TradeLimits {
  std::int64_t excess = 0;
  std::span<const std::int64_t> room;
};

struct Trade {
  std::int32_t mine = -1;    ///< chunk of the hot rank; -1: no trade was found
  std::int32_t theirs = -1;  ///< chunk of another node
};

/// Of the swaps of one of `hot` (chunks of one rank on one node) for a chunk of another node that lower the hot rank's
/// load by at least the excess and fit the other node, the one that leaves the worst inbound traffic least. Looks at as
/// many as the budget allows, those that move the least load first.
Trade best_trade(const Instance& instance, std::span<const std::int32_t> hot, const TradeLimits& limits,
                 NodeTraffic& traffic, Budget& budget);

}  // namespace flashmask::balancing
