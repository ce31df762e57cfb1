// The last step of the hierarchy: ranks above the target trade single chunks, or two, with other nodes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "balance/budget.hpp"
#include "balance/instance.hpp"
#include "balance/node_traffic.hpp"
#include "balance/state.hpp"

namespace flashmask::balancing {

/// The first `count` chunks of a hot rank for as many of a rank on another node; count = 0: no trade was found.
struct Trade {
  int count = 0;
  std::array<std::int32_t, 2> mine{};
  std::array<std::int32_t, 2> theirs{};
};

/// Swaps the chunks' nodes.
void apply(const Trade& trade, NodeTraffic& traffic);

/// Of the swaps of `count` (1 or 2) chunks of rank `hot` for as many of one rank of another node that lower the excess
/// of the two ranks over `target` together, the one with the least traffic for what it lowers: worst inbound first,
/// then the sum of the two nodes. Looks at as many as the budget allows.
Trade best_trade(const Instance& instance, const State& state, std::int64_t hot, std::int64_t target, int count,
                 NodeTraffic& traffic, Budget& budget);

}  // namespace flashmask::balancing
