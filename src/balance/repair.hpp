// The last step of the hierarchy: ranks above the target trade single chunks, or two, with other nodes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

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

/// What is known of trades that do not help: a rank that found nothing to trade finds nothing later either, but with
/// ranks that changed since, or when it changed itself.
class TradeMemo {
 public:
  explicit TradeMemo(std::int64_t ranks) : changed_(static_cast<std::size_t>(ranks), 0) {
    failed_.fill(std::vector<std::int64_t>(changed_.size(), -1));
  }
  /// A rank has other chunks than before.
  void change(std::int64_t rank) { changed_[static_cast<std::size_t>(rank)] = ++now_; }
  /// `rank` found nothing with any other, `count` chunks at a time.
  void fail(std::int64_t rank, int count) {
    failed_[static_cast<std::size_t>(count - 1)][static_cast<std::size_t>(rank)] = now_;
  }
  [[nodiscard]] bool open(std::int64_t rank, std::int64_t other, int count) const {
    return std::max(changed_[static_cast<std::size_t>(rank)], changed_[static_cast<std::size_t>(other)]) >
           failed_[static_cast<std::size_t>(count - 1)][static_cast<std::size_t>(rank)];
  }

 private:
  std::vector<std::int64_t> changed_;                // when, by rank
  std::array<std::vector<std::int64_t>, 2> failed_;  // when, by count and rank
  std::int64_t now_ = 0;
};

/// Swaps the chunks' nodes.
void apply(const Trade& trade, NodeTraffic& traffic);

/// Of the swaps of `count` (1 or 2) chunks of rank `hot` for as many of one rank of another node that lower the excess
/// of the two ranks over `target` together, the one with the least traffic for what it lowers: worst inbound first,
/// then the sum of the two nodes. Looks at as many as the budget allows, and at none that `memo` knows.
Trade best_trade(const Instance& instance, const State& state, std::int64_t hot, std::int64_t target, int count,
                 TradeMemo& memo, NodeTraffic& traffic, Budget& budget);

}  // namespace flashmask::balancing
