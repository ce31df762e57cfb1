#include "balance/triples.hpp"

#include <array>
#include <bit>

namespace flashmask::balancing {
namespace {

constexpr int kMostCount = 5;
constexpr std::int64_t kTripleCost = 12;  // steps of one complete repartition

/// Masks of `size` bits below `bits`, ascending.
std::vector<std::uint32_t> masks_of(int bits, int size) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t m = 0; m < (1U << bits); ++m) {
    if (std::popcount(m) == size) out.push_back(m);
  }
  return out;
}

/// Complete repartition of three ranks of equal count.
class Repartition {
 public:
  Repartition(const Instance& in, State& state) : in_(in), state_(state), count_(in.counts.front()) {
    for (const std::uint32_t m : masks_of(3 * count_, count_)) {
      if (m & 1U) first_.push_back(m);  // the part of chunk 0 is named first: no permutation is looked at twice
    }
    second_ = masks_of(2 * count_ - 1, count_ - 1);
    sums_.resize(std::size_t{1} << (3 * count_));
  }

  /// Applies the partition of ranks a, b, c with the least excess if it has less than now.
  bool improve(std::size_t a, std::size_t b, std::size_t c, std::int64_t target) {
    const std::array<std::size_t, 3> ranks{a, b, c};
    std::array<std::int32_t, 3 * kMostCount> pool{};
    std::int64_t now = 0;
    std::size_t n = 0;
    for (const std::size_t r : ranks) {
      now += std::max<std::int64_t>(0, state_.loads[r] - target);
      for (const std::int32_t chunk : state_.rank(static_cast<std::int64_t>(r))) pool[n++] = chunk;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const std::int64_t w = in_.loads[static_cast<std::size_t>(pool[i])];
      for (std::size_t m = 0; m < (std::size_t{1} << i); ++m) sums_[(std::size_t{1} << i) | m] = sums_[m] + w;
    }
    std::uint32_t best_first = 0, best_second = 0;
    const std::int64_t least = search(target, now, best_first, best_second);
    if (least >= now) return false;
    const std::uint32_t all = (1U << n) - 1;
    const std::array<std::uint32_t, 3> parts{best_first, best_second, all & ~best_first & ~best_second};
    for (std::size_t p = 0; p < 3; ++p) {
      const auto slots = state_.rank(static_cast<std::int64_t>(ranks[p]));
      std::size_t at = 0;
      for (std::uint32_t m = parts[p]; m != 0; m &= m - 1) {
        slots[at++] = pool[static_cast<std::size_t>(std::countr_zero(m))];
      }
      state_.loads[ranks[p]] = sums_[parts[p]];
    }
    return true;
  }

 private:
  std::int64_t search(std::int64_t target, std::int64_t least, std::uint32_t& best_first, std::uint32_t& best_second) {
    const std::uint32_t all = (1U << (3 * count_)) - 1;
    for (const std::uint32_t first : first_) {
      const std::int64_t over = std::max<std::int64_t>(0, sums_[first] - target);
      const std::uint32_t rest = all & ~first;
      const std::int64_t rest_sum = sums_[rest];
      if (over + std::max<std::int64_t>(0, rest_sum - 2 * target) >= least) continue;
      const std::uint32_t lowest = rest & (~rest + 1);
      spread(rest & ~lowest);
      for (const std::uint32_t compact : second_) {
        const std::uint32_t second = lowest | expand(compact);
        const std::int64_t s = sums_[second];
        const std::int64_t excess =
            over + std::max<std::int64_t>(0, s - target) + std::max<std::int64_t>(0, rest_sum - s - target);
        if (excess < least) {
          least = excess, best_first = first, best_second = second;
          if (least == 0) return 0;
        }
      }
    }
    return least;
  }

  void spread(std::uint32_t bits) {
    std::size_t i = 0;
    for (; bits != 0; bits &= bits - 1) place_[i++] = bits & (~bits + 1);
  }
  [[nodiscard]] std::uint32_t expand(std::uint32_t compact) const {
    std::uint32_t out = 0;
    for (; compact != 0; compact &= compact - 1) out |= place_[static_cast<std::size_t>(std::countr_zero(compact))];
    return out;
  }

  const Instance& in_;
  State& state_;
  int count_;
  std::vector<std::uint32_t> first_, second_;
  std::vector<std::int64_t> sums_;
  std::array<std::uint32_t, 2 * kMostCount> place_{};
};

}  // namespace

bool triples_apply(const Instance& in) {
  return in.speeds.empty() && in.equal_counts() && in.counts.front() >= 2 && in.counts.front() <= kMostCount &&
         in.ranks() >= 3;
}

bool repartition_triples(const Instance& in, State& state, std::int64_t target, Budget& budget) {
  Repartition repartition(in, state);
  const std::size_t ranks = in.counts.size();
  while (true) {
    const std::size_t hot =
        static_cast<std::size_t>(std::max_element(state.loads.begin(), state.loads.end()) - state.loads.begin());
    if (state.loads[hot] <= target) return true;
    bool improved = false;
    for (std::size_t b = 0; b < ranks && !improved; ++b) {
      if (b == hot) continue;
      for (std::size_t c = b + 1; c < ranks && !improved; ++c) {
        // Without room in the two others nothing can be gained.
        if (c == hot || (state.loads[b] >= target && state.loads[c] >= target)) continue;
        if (!budget.take(kTripleCost)) return false;
        improved = repartition.improve(hot, b, c, target);
      }
    }
    if (!improved) return false;
  }
}

}  // namespace flashmask::balancing
