#include "balance/residue_pair.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <vector>

#include "balance/residue.hpp"
#include "balance/state.hpp"

namespace flashmask::balancing {
namespace {

constexpr std::int64_t kMostCount = 16;    // chunks a rank: a target costs the square of it
constexpr std::int64_t kMostChunks = 512;  // of 30 instances a row it raised no bound at N = 1024 and 4096
constexpr std::size_t kMostOthers = 64;    // loads of neither class
constexpr int kDraws = 12, kDifferences = 4;
constexpr int kPeriods = 2;  // of the modulus below the peak that are looked at

/// Loads by their rest: two classes, and those of neither.
struct Classes {
  std::int64_t modulus = 0, rest = 0, other = 0;
  std::int64_t first = 0;               ///< loads with `rest`
  std::vector<std::int64_t> strange{};  ///< rests of loads of neither class
};

/// The two most frequent rests; false where they leave more than `most` loads.
bool classify(const Instance& in, std::size_t most, Classes& classes) {
  std::vector<std::int64_t> rests;
  for (const std::int64_t w : in.loads) rests.push_back(w % classes.modulus);
  std::sort(rests.begin(), rests.end());
  std::array<std::pair<std::int64_t, std::int64_t>, 2> frequent{};  // (loads, rest)
  for (auto at = rests.begin(); at != rests.end();) {
    const auto end = std::upper_bound(at, rests.end(), *at);
    frequent[1] = std::max(frequent[1], std::pair{std::int64_t{end - at}, *at});
    if (frequent[1].first > frequent[0].first) std::swap(frequent[0], frequent[1]);
    at = end;
  }
  if (frequent[1].first < 2) return false;  // one class: that is the residue bound
  classes.first = frequent[0].first;
  classes.rest = frequent[0].second;
  classes.other = frequent[1].second;
  if (rests.size() - static_cast<std::size_t>(frequent[0].first + frequent[1].first) > most) return false;
  for (const std::int64_t r : rests) {
    if (r != classes.rest && r != classes.other) classes.strange.push_back(r);
  }
  return true;
}

/// What ranks of equal counts waste at least under one target, and whether the slack holds it.
class Waste {
 public:
  Waste(const Instance& in, const Classes& classes) : in_(in), c_(classes), count_(in.counts.back()) {}

  /// T - (rests of a rank with `a` loads of the first class and `count - a` of the second), below the modulus.
  [[nodiscard]] std::int64_t of(std::int64_t target, std::int64_t a, std::int64_t count) const {
    return modulo(target - a * c_.rest - (count - a) * c_.other, c_.modulus);
  }

  [[nodiscard]] bool refutes(std::int64_t target) const {
    std::array<std::int64_t, kMostCount + 1> waste{};
    for (std::int64_t a = 0; a <= count_; ++a) waste[static_cast<std::size_t>(a)] = of(target, a, count_);
    // The line through two of these points that is the lower hull where ranks hold first / ranks of the class.
    const auto at = [&](std::int64_t a) { return waste[static_cast<std::size_t>(a)]; };
    const std::int64_t ranks = in_.ranks();
    std::int64_t from = 0, to = 0;
    bool any = false;
    Int128 least = 0, least_over = 1;  // of ranks * (value of the hull), as a fraction
    for (std::int64_t i = 0; i * ranks <= c_.first && i <= count_; ++i) {
      for (std::int64_t j = i; j <= count_; ++j) {
        if (j * ranks < c_.first || (j == i && i * ranks != c_.first)) continue;
        const std::int64_t over = std::max<std::int64_t>(1, j - i);
        const Int128 value = Int128{ranks} * at(i) * over + Int128{at(j) - at(i)} * (c_.first - i * ranks);
        if (any && value * least_over >= least * over) continue;
        any = true;
        least = value, least_over = over;
        from = i, to = j;
      }
    }
    if (!any) return false;
    return short_of(target, at(from), at(to) - at(from), from, std::max<std::int64_t>(1, to - from));
  }

 private:
  /// Whether the slack of `target` is less than what the line (value + slope / over * (a - from)) leaves as waste.
  [[nodiscard]] bool short_of(std::int64_t target, std::int64_t value, std::int64_t slope, std::int64_t from,
                              std::int64_t over) const {
    const auto line = [&](std::int64_t a) { return value * over + slope * (a - from); };  // times `over`, as all below
    std::int64_t together = 0;
    for (std::int64_t a = 0; a + 2 <= count_; ++a) together = std::max(together, line(a));
    const Int128 wasted = Int128{in_.ranks()} * (value * over - slope * from) + Int128{slope} * c_.first;
    const Int128 slack = Int128{target} * in_.ranks() - in_.total;
    Int128 missing = 2 * (wasted - slack * over);  // twice what the slack does not hold, less what is saved of it
    for (const std::int64_t w : c_.strange) {
      if (missing <= 0) return false;
      std::int64_t alone = 0;
      for (std::int64_t a = 0; a < count_; ++a) alone = std::max(alone, line(a) - over * of(target - w, a, count_ - 1));
      missing -= std::max(2 * alone, together);
    }
    return missing > 0;
  }

  const Instance& in_;
  const Classes& c_;
  std::int64_t count_;
};

/// Divisors of the steps from one chunk to the next: within a document these are on its lattice.
std::vector<std::int64_t> moduli(const Instance& in) {
  std::vector<std::int64_t> found;
  Random random(0x2c1a55);
  for (int draw = 0; draw < kDraws; ++draw) {
    std::int64_t g = 0;
    for (int i = 0; i < kDifferences; ++i) {
      const std::size_t c = random.below(static_cast<std::uint64_t>(in.chunks() - 1));
      if (g != 1) g = std::gcd(g, in.loads[c + 1] - in.loads[c]);
    }
    if (g >= 2 && g <= kLargestModulus && std::find(found.begin(), found.end(), g) == found.end()) found.push_back(g);
  }
  return found;
}

/// Largest refuted target in [low, high], or low - 1. What the ranks waste above the slack changes little but where one
/// of the wastes starts again at 0, so only the stretches between these places are looked at, the highest first.
std::int64_t largest_refuted(const Waste& waste, std::int64_t modulus, std::int64_t count, std::int64_t low,
                             std::int64_t high) {
  std::vector<std::int64_t> ends{high};
  for (std::int64_t a = 0; a <= count; ++a) {
    std::int64_t end = high - waste.of(high, a, count) - 1;  // the last target before this waste starts again
    for (int period = 0; period < kPeriods && end >= low; ++period, end -= modulus) ends.push_back(end);
  }
  std::sort(ends.begin(), ends.end(), std::greater<>());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (waste.refutes(ends[i])) return ends[i];
    std::int64_t in = i + 1 < ends.size() ? ends[i + 1] + 1 : low, out = ends[i];
    if (in == out || !waste.refutes(in)) continue;
    while (out - in > 1) {
      const std::int64_t middle = in + (out - in) / 2;
      (waste.refutes(middle) ? in : out) = middle;
    }
    return in;
  }
  return low - 1;
}

}  // namespace

Bound residue_pair_bound(const Instance& in, const Bound& bound, std::int64_t peak) {
  Bound best = bound;
  const std::int64_t count = in.chunks() == 0 ? 0 : in.counts.back();
  if (!in.speeds.empty() || !in.equal_counts() || count < 2 || count > kMostCount) return best;
  if (in.chunks() < 4 || in.chunks() > kMostChunks) return best;
  const std::size_t most = std::min(kMostOthers, static_cast<std::size_t>(2 * in.ranks()));
  for (const std::int64_t modulus : moduli(in)) {
    Classes classes{.modulus = modulus};
    if (best.value >= peak || !classify(in, most, classes)) continue;
    const std::int64_t refuted = largest_refuted(Waste(in, classes), modulus, count, best.value, peak - 1);
    if (refuted < best.value) continue;
    best = {refuted + 1, BoundBy::residue, modulus, classes.rest, classes.other};
  }
  return best;
}

}  // namespace flashmask::balancing
