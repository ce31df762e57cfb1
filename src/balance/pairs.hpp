// P2: exchanges between two ranks until every rank is within the target.
#pragma once

#include "balance/budget.hpp"
#include "balance/state.hpp"
#include "balance/subsets.hpp"

namespace flashmask::balancing {

/// Local search on one state. Keeps the assignment with the smallest peak it passed.
template <typename Key>
class PairSearch {
 public:
  PairSearch(const Instance& instance, State start, std::uint64_t seed);

  /// Moves chunks until no rank exceeds `target`; true when that worked. Accepts what lowers the total excess over the
  /// target (not the peak: ranks tied at the peak would stall it), and moves that leave it equal when nothing does.
  bool descend(std::int64_t target, Budget& budget);

  /// The best assignment passed so far, and its peak.
  [[nodiscard]] const State& best() const { return best_; }
  [[nodiscard]] std::int64_t best_peak() const { return best_peak_; }
  /// Continues from the best assignment.
  void restart();

 private:
  [[nodiscard]] std::int64_t excess(std::size_t rank) const { return state_.loads[rank] - capacity_[rank]; }
  void set_target(std::int64_t target);
  void remember();
  bool improve(std::size_t hot, Budget& budget);
  bool try_pair(std::size_t hot, std::size_t cold);
  bool sidestep(std::size_t hot, Budget& budget);
  bool shuffle(std::size_t hot, Budget& budget);
  void apply(std::size_t a, std::size_t b, const Exchange& exchange);

  const Instance& in_;
  State state_;
  Random random_;
  SubsetCache<Key> cache_;
  State best_;
  std::int64_t best_peak_;
  std::vector<std::int64_t> capacity_;
  std::vector<std::int64_t> changed_;  // clock of the last change of a rank
  std::vector<std::int64_t> failed_;   // clock up to which every partner of a hot rank failed
  std::int64_t clock_ = 1;
};

extern template class PairSearch<std::uint64_t>;
extern template class PairSearch<WideKey>;

}  // namespace flashmask::balancing
