#include "balance/bounds.hpp"

#include <algorithm>

#include "balance/residue.hpp"

namespace flashmask::balancing {
namespace {

/// What all bounds read: loads in descending order with running sums, and the smallest counts.
struct Sorted {
  explicit Sorted(const Instance& instance) : in(instance) {
    w.reserve(in.loads.size());
    for (const std::int32_t c : in.by_load) w.push_back(in.loads[static_cast<std::size_t>(c)]);
    prefix.assign(1, 0);
    prefix.reserve(w.size() + 1);
    for (const std::int64_t x : w) prefix.push_back(prefix.back() + x);
    chunks = in.chunks();
    ranks = in.ranks();
    least = in.counts.back();
  }
  [[nodiscard]] std::int64_t at(std::int64_t i) const { return w[static_cast<std::size_t>(i)]; }
  /// Sum of positions [a, b).
  [[nodiscard]] std::int64_t sum(std::int64_t a, std::int64_t b) const {
    return prefix[static_cast<std::size_t>(b)] - prefix[static_cast<std::size_t>(a)];
  }
  [[nodiscard]] std::int64_t smallest(std::int64_t k) const { return sum(chunks - k, chunks); }

  const Instance& in;
  std::vector<std::int64_t> w, prefix;
  std::int64_t chunks = 0, ranks = 0;
  std::int64_t least = 0;  ///< chunks of the rank with the fewest
};

/// Smallest target in [low, high] that `possible` admits, given that possible(high) holds or is not to be refuted:
/// every target below the result was refuted or lies below a refuted one.
template <typename Possible>
std::int64_t smallest_target(std::int64_t low, std::int64_t high, const Possible& possible) {
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (possible(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

std::int64_t average(const Sorted& s) {
  const Instance& in = s.in;
  if (in.speeds.empty()) return ceil_div(in.total, s.ranks);
  return smallest_target(0, in.time(in.ranks() - 1, in.total), [&](std::int64_t target) {
    Int128 room = 0;
    for (std::int64_t r = 0; r < s.ranks; ++r) room += in.capacity(r, target);
    return room >= in.total;
  });
}

/// Of the jP+1 largest, some rank holds j+1, and at least least-j-1 others.
std::int64_t pigeonhole(const Sorted& s) {
  std::int64_t best = 0;
  for (std::int64_t j = 0; j * s.ranks + 1 <= s.chunks; ++j) {
    const std::int64_t top = j * s.ranks + 1;
    const std::int64_t others = std::max<std::int64_t>(0, s.least - j - 1);
    best = std::max(best, s.sum(top - j - 1, top) + s.smallest(std::min(others, s.chunks - top)));
  }
  return best;
}

/// Every rank must be relieved of count * max - capacity by chunks lighter than the largest; a chunk relieves at most
/// the largest of these demands.
std::int64_t covering(const Sorted& s, std::int64_t low, std::int64_t high) {
  const std::int64_t largest = s.at(0);
  const std::int64_t fewest = s.least, most = s.in.counts.front();
  const auto possible = [&](std::int64_t target) {
    Int128 demand = 0, widest = 0;
    if (s.in.speeds.empty()) {
      const Int128 a = std::max<Int128>(0, Int128{most} * largest - target);
      const Int128 b = std::max<Int128>(0, Int128{fewest} * largest - target);
      const std::int64_t many = s.chunks - fewest * s.ranks;
      demand = (fewest == most ? Int128{s.ranks} * b : many * a + (s.ranks - many) * b);
      widest = std::max(a, b);
    } else {
      for (std::int64_t r = 0; r < s.ranks; ++r) {
        const Int128 d = Int128{s.in.counts[static_cast<std::size_t>(r)]} * largest - s.in.capacity(r, target);
        demand += std::max<Int128>(0, d);
        widest = std::max(widest, d);
      }
    }
    // Sum of min(largest - w, widest): chunks lighter than largest - widest give `widest` each.
    const auto light =
        std::partition_point(s.w.begin(), s.w.end(), [&](std::int64_t w) { return Int128{largest} - w < widest; });
    const std::int64_t split = light - s.w.begin();
    const Int128 supply = Int128{largest} * split - s.sum(0, split) + widest * (s.chunks - split);
    return supply >= demand;
  };
  return smallest_target(low, high, possible);
}

/// If any two of the m largest exceed the target together with the least-2 smallest, m ranks hold one of them each and
/// (least-1)m further chunks.
std::int64_t incompatible(const Sorted& s) {
  if (s.least < 1) return 0;
  std::int64_t best = 0;
  const std::int64_t beside = s.smallest(std::max<std::int64_t>(0, s.least - 2));
  for (std::int64_t m = 2; m <= std::min(s.ranks, s.chunks); ++m) {
    const std::int64_t rest = std::min((s.least - 1) * m, s.chunks - m);
    const std::int64_t apart = ceil_div(Int128{s.sum(0, m)} + s.smallest(rest), m);
    // With one chunk on every rank no two can ever meet.
    const bool never_meet = s.in.counts.front() == 1;
    const std::int64_t together = never_meet ? apart : s.at(m - 2) + s.at(m - 1) + beside;
    best = std::max(best, std::min(together, apart));
  }
  return best;
}

}  // namespace

Bound lower_bound(const Instance& instance) {
  if (instance.chunks() == 0) return {};
  const Sorted s(instance);
  Bound bound{average(s), BoundBy::average};
  const auto take = [&](std::int64_t value, BoundBy by) {
    if (value > bound.value) bound = {value, by};
  };
  take(pigeonhole(s), BoundBy::pigeonhole);
  take(incompatible(s), BoundBy::incompatible);
  // Any plan is at most the total; above that nothing needs refuting.
  take(covering(s, bound.value, std::max(bound.value, instance.total)), BoundBy::covering);
  take(residue_bound(instance, bound.value), BoundBy::residue);
  return bound;
}

}  // namespace flashmask::balancing
