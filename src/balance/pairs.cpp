#include "balance/pairs.hpp"

#include <utility>

namespace flashmask::balancing {
namespace {

constexpr int kSideChoices = 12;  // exchanges a sideways move chooses from

}  // namespace

template <typename Key>
PairSearch<Key>::PairSearch(const Instance& instance, State start, std::uint64_t seed)
    : in_(instance),
      state_(std::move(start)),
      random_(seed),
      cache_(in_, state_, in_.equal_counts() && in_.speeds.empty(), random_),
      best_(state_),
      best_peak_(state_.peak(in_)),
      capacity_(in_.counts.size()),
      changed_(in_.counts.size(), 1),
      failed_(in_.counts.size(), 0) {}

template <typename Key>
void PairSearch<Key>::set_target(std::int64_t target) {
  for (std::size_t r = 0; r < capacity_.size(); ++r) capacity_[r] = in_.capacity(static_cast<std::int64_t>(r), target);
  std::fill(failed_.begin(), failed_.end(), 0);
}

template <typename Key>
void PairSearch<Key>::remember() {
  const std::int64_t peak = state_.peak(in_);
  if (peak >= best_peak_) return;
  best_peak_ = peak;
  best_ = state_;
}

template <typename Key>
void PairSearch<Key>::restart() {
  state_ = best_;
  ++clock_;
  for (std::size_t r = 0; r < changed_.size(); ++r) {
    cache_.invalidate(static_cast<std::int64_t>(r));
    changed_[r] = clock_;
  }
}

template <typename Key>
void PairSearch<Key>::apply(std::size_t a, std::size_t b, const Exchange& exchange) {
  cache_.apply(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b), exchange);
  changed_[a] = changed_[b] = ++clock_;
}

/// Exchanges if that lowers the excess of the two together: `hot` must lose `over`, `cold` has room for `room`.
template <typename Key>
bool PairSearch<Key>::try_pair(std::size_t hot, std::size_t cold) {
  const std::int64_t over = excess(hot);
  const std::int64_t room = -excess(cold);
  // Inside [min, max] as much excess vanishes as the two allow; outside, every unit of distance costs one.
  Exchange exchange;
  const std::int64_t distance = cache_.best_exchange(static_cast<std::int64_t>(hot), static_cast<std::int64_t>(cold),
                                                     std::min(over, room), std::max(over, room), 1, exchange);
  if (distance < 0 || distance >= std::min(over, room)) return false;
  apply(hot, cold, exchange);
  return true;
}

template <typename Key>
bool PairSearch<Key>::improve(std::size_t hot, Budget& budget) {
  const std::size_t ranks = capacity_.size();
  const bool unchanged = changed_[hot] <= failed_[hot];
  std::size_t coldest = hot;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (excess(r) < excess(coldest)) coldest = r;
  }
  if (excess(coldest) >= 0) return false;
  if (!(unchanged && changed_[coldest] <= failed_[hot])) {
    if (!budget.take()) return false;
    if (try_pair(hot, coldest)) return true;
  }
  const std::size_t first = random_.below(ranks);
  for (std::size_t i = 0; i < ranks; ++i) {
    const std::size_t cold = first + i < ranks ? first + i : first + i - ranks;
    if (cold == coldest || excess(cold) >= 0 || (unchanged && changed_[cold] <= failed_[hot])) continue;
    if (!budget.take()) return false;
    if (try_pair(hot, cold)) return true;
  }
  failed_[hot] = clock_;
  return false;
}

/// Hands the excess on: `hot` comes within its target and a random other rank takes at most as much excess.
template <typename Key>
bool PairSearch<Key>::sidestep(std::size_t hot, Budget& budget) {
  const std::size_t ranks = capacity_.size();
  const std::int64_t over = excess(hot);
  for (int attempt = 0; attempt < 48; ++attempt) {
    const std::size_t other = random_.below(ranks);
    if (other == hot || in_.counts[other] == 0 || excess(other) > 0) continue;
    if (!budget.take()) return false;
    Exchange exchange;
    if (cache_.best_exchange(static_cast<std::int64_t>(hot), static_cast<std::int64_t>(other), over,
                             over - excess(other), kSideChoices, exchange) == 0) {
      apply(hot, other, exchange);
      return true;
    }
  }
  return shuffle(hot, budget);
}

/// Changes what two other ranks hold without overloading them, so that `hot` finds new partners.
template <typename Key>
bool PairSearch<Key>::shuffle(std::size_t hot, Budget& budget) {
  const std::size_t ranks = capacity_.size();
  for (int attempt = 0; attempt < 48; ++attempt) {
    const std::size_t x = random_.below(ranks), y = random_.below(ranks);
    if (x == y || x == hot || y == hot || excess(x) > 0 || excess(y) > 0) continue;
    if (!budget.take()) return false;
    Exchange exchange;
    if (cache_.best_exchange(static_cast<std::int64_t>(x), static_cast<std::int64_t>(y), excess(x), -excess(y),
                             kSideChoices, exchange) == 0) {
      apply(x, y, exchange);
      return true;
    }
  }
  return false;
}

template <typename Key>
bool PairSearch<Key>::descend(std::int64_t target, Budget& budget) {
  set_target(target);
  while (true) {
    std::size_t hot = 0;
    for (std::size_t r = 1; r < capacity_.size(); ++r) {
      if (excess(r) > excess(hot)) hot = r;
    }
    if (excess(hot) <= 0) {
      remember();
      return true;
    }
    if (budget.over()) break;
    if (improve(hot, budget)) continue;
    remember();
    if (budget.over() || !sidestep(hot, budget)) break;
  }
  remember();
  return false;
}

template class PairSearch<std::uint64_t>;
template class PairSearch<WideKey>;

}  // namespace flashmask::balancing
