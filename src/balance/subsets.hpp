// Subset sums of one rank by cardinality, and the best exchange of equally many chunks between two ranks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "balance/state.hpp"

namespace flashmask::balancing {

constexpr int kWindow = 16;        ///< chunks of a rank that take part in exchanges at a time
constexpr int kMostEntries = 700;  ///< subsets kept per rank

/// binomial(n, k) for n <= kWindow.
constexpr auto kChoose = [] {
  std::array<std::array<std::int32_t, kWindow + 2>, kWindow + 1> c{};
  for (std::size_t n = 0; n <= kWindow; ++n) {
    c[n][0] = 1;
    for (std::size_t k = 1; k <= n; ++k) c[n][k] = c[n - 1][k - 1] + c[n - 1][k];
  }
  return c;
}();

/// Chunks in `mask_a` (bits over the window of rank a) for those in `mask_b`; `delta` is what a loses and b gains.
struct Exchange {
  std::uint32_t mask_a = 0;
  std::uint32_t mask_b = 0;
  std::int64_t delta = 0;
};

/// Sorted subset sums of every rank, built when first asked for and again after the rank changed. An entry packs
/// (sum << 16) | mask, so adding a chunk is one addition; Key is 64 bits where sums fit 47, else 128.
template <typename Key>
class SubsetCache {
 public:
  /// `halved`: exchanges of more than half of the chunks equal smaller ones up to the names of the two ranks.
  SubsetCache(const Instance& instance, State& state, bool halved, Random& random);

  /// Looks for an exchange with delta in [low, high]; otherwise the one nearest to it. Returns the distance (0:
  /// inside), or a negative number when there is no exchange at all. Takes the first hit, or one of the first `choices`
  /// at random.
  std::int64_t best_exchange(std::int64_t a, std::int64_t b, std::int64_t low, std::int64_t high, int choices,
                             Exchange& best);
  /// Swaps the chunks and drops both ranks' lists.
  void apply(std::int64_t a, std::int64_t b, const Exchange& exchange);
  void invalidate(std::int64_t rank) { lists_[static_cast<std::size_t>(rank)].fresh = false; }

 private:
  struct Lists {
    std::unique_ptr<Key[]> entries;  // per cardinality a zero, then the sums ascending
    std::array<std::int32_t, kWindow> slots{};
    std::int32_t window = 0;
    std::int32_t deepest = 0;  // largest cardinality kept
    bool fresh = false;
  };
  const Lists& lists(std::int64_t rank);
  void build(std::int64_t rank, Lists& lists);

  const Instance& in_;
  State& state_;
  bool halved_;
  Random& random_;
  std::vector<Lists> lists_;
};

extern template class SubsetCache<std::uint64_t>;
__extension__ typedef unsigned __int128 WideKey;
extern template class SubsetCache<WideKey>;

}  // namespace flashmask::balancing
