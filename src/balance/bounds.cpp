#include "balance/bounds.hpp"

#include <algorithm>
#include <limits>

#include "balance/residue.hpp"

namespace flashmask::balancing {
namespace {

// Beyond these, company is not looked at: it would take the square of chunks a rank, or of ranks.
constexpr std::int64_t kMostCompany = 16, kMostPaired = 1024;

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

/// With speeds: the slowest ranks hold their chunks, and those weigh at least as much as the smallest loads there are.
/// The sets looked at are the last places, and the last of the places with one chunk more.
std::int64_t counts(const Sorted& s, std::int64_t low) {
  const Instance& in = s.in;
  if (in.speeds.empty()) return low;
  const std::int64_t one_more = s.chunks - s.least * s.ranks;  // places that hold one chunk more: the first
  return smallest_target(low, in.time(s.ranks - 1, in.total), [&](std::int64_t target) {
    for (const std::int64_t last : {s.ranks, one_more}) {
      Int128 room = 0;
      std::int64_t held = 0;
      for (std::int64_t r = last; r-- > 0;) {
        room += in.capacity(r, target);
        held += in.counts[static_cast<std::size_t>(r)];
        if (s.smallest(held) > room) return false;
      }
    }
    return true;
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

/// Some of `crowded` ranks that hold `each` chunks apiece of those behind the q largest carry at least this: of the
/// lightest, as few as there need to be, by pigeonhole, and in pairs by the heaviest having to pair with others.
std::int64_t lightest_company(const Sorted& s, std::int64_t crowded, std::int64_t each, std::int64_t q) {
  const std::int64_t begin = s.chunks - crowded * each;
  if (each == 0 || each > kMostCompany || begin < q) return 0;
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < each; ++i) {
    const std::int64_t top = begin + i * crowded + 1;
    best = std::max(best, s.sum(top - i - 1, top) + s.smallest(each - i - 1));
  }
  for (std::int64_t t = 0; each == 2 && crowded <= kMostPaired && t < crowded; ++t)
    best = std::max(best, s.at(begin + t) + s.at(s.chunks - 1 - t));
  return best;
}

/// Of the q = j * ranks + s largest, no rank can hold j+2 unless the target admits the j+2 lightest of them. Then s
/// ranks hold exactly j+1 of them each, and least-j-1 others, which weigh something together and something on one of
/// the ranks. With j = 0: the s largest are incompatible in pairs.
std::int64_t incompatible(const Sorted& s) {
  std::int64_t best = 0;
  for (std::int64_t q = 2; q <= s.chunks; ++q) {
    const std::int64_t j = (q - 1) / s.ranks, crowded = q - j * s.ranks;
    if (j + 1 > s.in.counts.front()) break;
    const std::int64_t each = std::max<std::int64_t>(0, s.least - j - 1);
    const bool may_meet = j + 2 <= std::min<std::int64_t>(s.in.counts.front(), q);
    const std::int64_t together =
        may_meet ? s.sum(q - j - 2, q) + s.smallest(std::min(std::max<std::int64_t>(0, s.least - j - 2), s.chunks - q))
                 : std::numeric_limits<std::int64_t>::max();
    if (together <= best) continue;
    const Int128 held = Int128{s.sum(q - (j + 1) * crowded, q)} + s.smallest(std::min(each * crowded, s.chunks - q));
    const std::int64_t apart =
        std::max(ceil_div(held, crowded), s.sum(q - j - 1, q) + lightest_company(s, crowded, each, q));
    best = std::max(best, std::min(together, apart));
  }
  return best;
}

}  // namespace

Bound lower_bound(const Instance& instance) {
  if (instance.chunks() == 0) return {};
  const Sorted s(instance);
  Bound bound{.value = average(s)};
  const auto take = [&](std::int64_t value, BoundBy by) {
    if (value > bound.value) bound = {.value = value, .by = by};
  };
  take(counts(s, bound.value), BoundBy::counts);
  take(pigeonhole(s), BoundBy::pigeonhole);
  take(incompatible(s), BoundBy::incompatible);
  // Any plan ends before the slowest rank would with everything; above that nothing needs refuting.
  const std::int64_t most = instance.time(instance.ranks() - 1, instance.total);
  take(covering(s, bound.value, std::max(bound.value, most)), BoundBy::covering);
  return residue_bound(instance, bound);
}

}  // namespace flashmask::balancing
