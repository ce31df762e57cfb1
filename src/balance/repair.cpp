#include "balance/repair.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace flashmask::balancing {
namespace {

constexpr std::size_t kMostTrades = 256;  // looked at in one call

/// Worst inbound traffic if the two chunks changed nodes.
std::int64_t worst_after(NodeTraffic& traffic, std::int32_t mine, std::int32_t theirs) {
  const std::int32_t a = traffic.node_of(mine), b = traffic.node_of(theirs);
  traffic.move(mine, b);
  traffic.move(theirs, a);
  const std::int64_t worst = traffic.worst();
  traffic.move(theirs, b);
  traffic.move(mine, a);
  return worst;
}

}  // namespace

Trade best_trade(const Instance& in, std::span<const std::int32_t> hot, const TradeLimits& limits, NodeTraffic& traffic,
                 Budget& budget) {
  std::vector<std::pair<std::int64_t, Trade>> trades;  // with the load each moves
  for (const std::int32_t mine : hot) {
    for (std::int32_t theirs = 0; theirs < in.chunks(); ++theirs) {
      const std::int32_t b = traffic.node_of(theirs);
      const std::int64_t moved = in.loads[static_cast<std::size_t>(mine)] - in.loads[static_cast<std::size_t>(theirs)];
      if (b == traffic.node_of(mine) || moved < limits.excess || moved > limits.room[static_cast<std::size_t>(b)]) {
        continue;
      }
      trades.push_back({moved, {mine, theirs}});
    }
  }
  const auto lighter = [](const auto& x, const auto& y) {
    if (x.first != y.first) return x.first < y.first;
    return x.second.mine != y.second.mine ? x.second.mine < y.second.mine : x.second.theirs < y.second.theirs;
  };
  const std::size_t kept = std::min(kMostTrades, trades.size());
  std::partial_sort(trades.begin(), trades.begin() + static_cast<std::ptrdiff_t>(kept), trades.end(), lighter);
  Trade best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < kept && budget.take(); ++i) {
    const std::int64_t worst = worst_after(traffic, trades[i].second.mine, trades[i].second.theirs);
    if (worst < least) least = worst, best = trades[i].second;
  }
  return best;
}

}  // namespace flashmask::balancing
