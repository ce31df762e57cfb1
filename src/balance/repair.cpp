#include "balance/repair.hpp"

#include <algorithm>
#include <vector>

namespace flashmask::balancing {
namespace {

constexpr std::int64_t kWorstWeight = 8;   // a unit of worst inbound counts as much as eight of the two nodes' sum
constexpr std::size_t kMostForPairs = 32;  // chunks of a rank up to which pairs of them are tried
constexpr std::int64_t kCheap = 32;        // swaps ruled out by their loads that cost as much as one priced

/// One or two chunks of a rank with the load they carry.
struct Handful {
  std::int64_t load = 0;
  std::array<std::int32_t, 2> chunks{};
};

std::vector<Handful> handfuls(const Instance& in, std::span<const std::int32_t> chunks, int count) {
  std::vector<Handful> out;
  if (count == 2 && chunks.size() > kMostForPairs) return out;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const std::int64_t first = in.loads[static_cast<std::size_t>(chunks[i])];
    if (count == 1) out.push_back({first, {chunks[i], -1}});
    for (std::size_t j = i + 1; count == 2 && j < chunks.size(); ++j) {
      out.push_back({first + in.loads[static_cast<std::size_t>(chunks[j])], {chunks[i], chunks[j]}});
    }
  }
  return out;
}

/// Traffic that a trade would add.
std::int64_t price(NodeTraffic& traffic, const Trade& trade, std::int64_t worst) {
  const std::int64_t a = traffic.node_of(trade.mine[0]), b = traffic.node_of(trade.theirs[0]);
  const std::int64_t before = traffic.inbound(a) + traffic.inbound(b);
  apply(trade, traffic);
  const std::int64_t sum = traffic.inbound(a) + traffic.inbound(b);
  const std::int64_t higher = std::max(traffic.inbound(a), traffic.inbound(b)) - worst;
  apply(trade, traffic);
  return kWorstWeight * std::max<std::int64_t>(0, higher) + std::max<std::int64_t>(0, sum - before);
}

}  // namespace

void apply(const Trade& trade, NodeTraffic& traffic) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(trade.count); ++i) {
    traffic.exchange(trade.mine[i], trade.theirs[i], 1);
  }
}

Trade best_trade(const Instance& in, const State& state, std::int64_t hot, std::int64_t target, int count,
                 TradeMemo& memo, NodeTraffic& traffic, Budget& budget) {
  const auto excess = [&](std::int64_t rank, std::int64_t more) {
    return std::max<std::int64_t>(0, state.loads[static_cast<std::size_t>(rank)] + more - in.capacity(rank, target));
  };
  const std::int64_t over = excess(hot, 0), worst = traffic.worst();
  const std::vector<Handful> mine = handfuls(in, state.rank(hot), count);
  if (mine.empty()) return {};
  const std::int32_t own_node = traffic.node_of(mine[0].chunks[0]);
  Trade best;
  Int128 best_price = 0;
  std::int64_t best_gain = 0;
  for (std::int64_t other = 0; other < in.ranks(); ++other) {
    if (!memo.open(hot, other, count)) continue;
    const std::vector<Handful> theirs = handfuls(in, state.rank(other), count);
    if (theirs.empty() || traffic.node_of(theirs[0].chunks[0]) == own_node) continue;
    if (!budget.take(1 + static_cast<std::int64_t>(mine.size() * theirs.size()) / kCheap)) return best;
    for (const Handful& x : mine) {
      for (const Handful& y : theirs) {
        const std::int64_t lost = x.load - y.load;
        if (lost <= 0) continue;
        const std::int64_t gain = over - excess(hot, -lost) + excess(other, 0) - excess(other, lost);
        // No trade costs less than 1: what could not win even at that price is not looked at.
        if (gain <= 0 || (best_gain != 0 && best_gain >= best_price * gain)) continue;
        if (!budget.take()) return best;
        const Trade trade{count, x.chunks, y.chunks};
        const std::int64_t own = 1 + price(traffic, trade, worst);
        if (best_gain != 0 && Int128{own} * best_gain >= best_price * gain) continue;
        best = trade;
        best_price = own;
        best_gain = gain;
      }
    }
  }
  if (best.count == 0) memo.fail(hot, count);
  return best;
}

}  // namespace flashmask::balancing
