// Deliberately naive: what is slow and plain here is what makes it a second opinion.
#include "balance/refute.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <set>

namespace flashmask::balancing {
namespace {

constexpr std::int64_t kMostLines = 16;  // chunks a rank with two classes of residues: more are no part of the argument
constexpr std::size_t kMostStrange = 64;                       // loads of neither class
constexpr std::int64_t kMostCompany = 16, kMostPaired = 1024;  // larger ones are no part of the argument

}  // namespace

Refuter::Refuter(const PlanRecord& record, List counts) : w_(record.chunk_loads), counts_(std::move(counts)) {
  std::sort(w_.rbegin(), w_.rend());
  before_.assign(1, 0);
  for (const std::int64_t w : w_) before_.push_back(before_.back() + w);
  total_ = static_cast<std::int64_t>(before_.back());
  const auto [fewest, most] = std::minmax_element(counts_.begin(), counts_.end());
  fewest_ = *fewest;
  most_ = *most;
  speeds_ = record.speeds;
  lattice_ = record.residue;
  if (!speeds_.empty()) fastest_ = *std::max_element(speeds_.begin(), speeds_.end());
}

bool Refuter::refuted_by(BoundBy by, std::int64_t target) const {
  target -= beyond_lattice(target);
  switch (by) {
    case BoundBy::average:
      return average(target);
    case BoundBy::counts:
      return by_counts(target);
    case BoundBy::pigeonhole:
      return pigeonhole(target);
    case BoundBy::covering:
      return covering(target);
    case BoundBy::incompatible:
      return apart(target);
    case BoundBy::residue:
      return residue(target);
    case BoundBy::search:
      break;
  }
  return false;
}

bool Refuter::refuted(std::int64_t target) const {
  target -= beyond_lattice(target);
  return average(target) || by_counts(target) || pigeonhole(target) || covering(target) || apart(target) ||
         residue(target);
}

Refuter::Wide Refuter::sum(std::int64_t from, std::int64_t count) const {
  const std::int64_t n = static_cast<std::int64_t>(w_.size());
  const std::int64_t begin = std::min(n, from), end = std::min(n, from + std::max<std::int64_t>(0, count));
  return before_[static_cast<std::size_t>(end)] - before_[static_cast<std::size_t>(begin)];
}

Refuter::Wide Refuter::smallest(std::int64_t count) const {
  const std::int64_t k = std::clamp<std::int64_t>(count, 0, static_cast<std::int64_t>(w_.size()));
  return sum(static_cast<std::int64_t>(w_.size()) - k, k);
}

/// How far `target` lies above the next value that the load of any rank can have: loads share a divisor, and with equal
/// counts their differences do.
std::int64_t Refuter::beyond_lattice(std::int64_t target) const {
  if (!speeds_.empty()) return 0;
  const std::int64_t base = most_ == fewest_ ? w_.back() : 0;
  std::int64_t divisor = 0;
  for (const std::int64_t w : w_) divisor = std::gcd(divisor, w - base);
  if (divisor == 0) return 0;
  const auto beyond = static_cast<std::int64_t>((Wide{target} - Wide{base} * fewest_) % divisor);
  return beyond < 0 ? beyond + divisor : beyond;
}

bool Refuter::average(std::int64_t target) const {
  Wide room = 0;
  for (std::size_t r = 0; r < counts_.size(); ++r) room += capacity(r, target);
  return room < total_;
}

/// Ranks one after the other, the slowest first: do so many chunks fit into those so far at all? Once over all ranks
/// and once over those with one chunk more.
bool Refuter::by_counts(std::int64_t target) const {
  if (speeds_.empty()) return false;
  std::vector<std::size_t> slowest(counts_.size());
  std::iota(slowest.begin(), slowest.end(), std::size_t{0});
  std::stable_sort(slowest.begin(), slowest.end(), [&](std::size_t a, std::size_t b) {
    return std::pair{speeds_[a], counts_[a]} < std::pair{speeds_[b], counts_[b]};
  });
  for (const std::int64_t at_least : {fewest_, most_}) {
    Wide room = 0;
    std::int64_t chunks = 0;
    for (const std::size_t r : slowest) {
      if (counts_[r] < at_least) continue;
      room += capacity(r, target);
      chunks += counts_[r];
      if (smallest(chunks) > room) return true;
    }
  }
  return false;
}

bool Refuter::pigeonhole(std::int64_t target) const {
  for (std::int64_t j = 0; j * ranks() < static_cast<std::int64_t>(w_.size()); ++j) {
    const std::int64_t top = j * ranks() + 1;
    if (sum(top - j - 1, j + 1) + smallest(fewest_ - j - 1) > target) return true;
  }
  return false;
}

bool Refuter::covering(std::int64_t target) const {
  Wide demand = 0, widest = 0, supply = 0;
  for (std::size_t r = 0; r < counts_.size(); ++r) {
    const Wide d = std::max<Wide>(0, Wide{counts_[r]} * w_[0] - capacity(r, target));
    demand += d;
    widest = std::max(widest, d);
  }
  for (const std::int64_t w : w_) supply += std::min<Wide>(w_[0] - w, widest);
  return supply < demand;
}

/// Counts how many of the q largest some ranks must hold when none can hold one more.
bool Refuter::apart(std::int64_t target) const {
  const std::int64_t n = static_cast<std::int64_t>(w_.size());
  for (std::int64_t each = 1; each <= most_; ++each) {
    for (std::int64_t s = 1; s <= ranks() && (each - 1) * ranks() + s <= n; ++s) {
      const std::int64_t q = (each - 1) * ranks() + s;
      const auto lightest = [&](std::int64_t k) {
        return sum(q - k, k) + smallest(std::min(n - q, fewest_ - each - 1));
      };
      if (each + 1 <= most_ && each + 1 <= q && lightest(each + 1) <= target) continue;  // some rank can hold more
      const Wide held =
          sum(q - each * s, each * s) + smallest(std::min(n - q, std::max<std::int64_t>(0, fewest_ - each) * s));
      if (held > Wide{s} * target) return true;
      // One of these ranks: the lightest `each` of the q, and company of the lightest behind them.
      if (sum(q - each, each) + company(q, s, std::max<std::int64_t>(0, fewest_ - each)) > target) return true;
    }
  }
  return false;
}

/// What one of `ranks` ranks carries at least of chunks behind the q largest when each holds `count` of them. A list of
/// the lightest that many, heaviest first: some rank holds i + 1 of the first i * ranks + 1 (and the lightest besides),
/// and where two make a rank, the first t either meet or have t others beside them.
Refuter::Wide Refuter::company(std::int64_t q, std::int64_t ranks, std::int64_t count) const {
  const std::int64_t n = static_cast<std::int64_t>(w_.size());
  if (count == 0 || count > kMostCompany || q + ranks * count > n) return 0;
  const auto light = [&](std::int64_t i) { return w_[static_cast<std::size_t>(n - ranks * count + i)]; };
  Wide most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Wide load = smallest(count - 1 - i);
    for (std::int64_t k = 0; k <= i; ++k) load += light(i * ranks - k);
    most = std::max(most, load);
  }
  for (std::int64_t t = 0; count == 2 && ranks <= kMostPaired && t < ranks; ++t) {
    most = std::max<Wide>(most, Wide{light(t)} + light(2 * ranks - 1 - t));
  }
  return most;
}

/// Loads on the lattice give every rank one remainder; what a rank then stays below the target at least is waste, which
/// only loads off the lattice can save, and the slack must hold what is left of it.
bool Refuter::residue(std::int64_t target) const {
  if (!speeds_.empty() || !lattice_) return false;
  if (lattice_->other >= 0) return two_residues(target);
  const Wide modulus = lattice_->modulus, rest = lattice_->rest;
  const auto wasted = [&](Wide count) {
    const Wide t = (target - count * rest) % modulus;
    return t < 0 ? t + modulus : t;
  };
  Wide waste = 0, twice_saved = 0;
  for (const std::int64_t k : counts_) waste += wasted(k);
  const Wide most = std::max(wasted(fewest_), wasted(most_));
  for (const std::int64_t w : w_) {
    const Wide offset = (w - rest + modulus) % modulus;
    if (offset == 0) continue;
    twice_saved += std::max<Wide>(most, offset <= most ? 2 * offset : 0);
  }
  return 2 * (Wide{target} * ranks() - total_) < 2 * waste - twice_saved;
}

/// How far a rank stays below the target with so many loads of the two classes and one more load, at least.
Refuter::Wide Refuter::wasted(std::int64_t target, std::int64_t first, std::int64_t second, std::int64_t load) const {
  const Wide t = (target - Wide{first} * lattice_->rest - Wide{second} * lattice_->other - load) % lattice_->modulus;
  return t < 0 ? t + lattice_->modulus : t;
}

/// Two classes of loads: every line below what ranks waste by their number of loads of the first class bounds what all
/// waste together, and some line may show that the slack does not hold it.
bool Refuter::two_residues(std::int64_t target) const {
  if (most_ != fewest_ || fewest_ < 1 || fewest_ > kMostLines) return false;
  std::int64_t first = 0;
  List strange;  // loads of neither class
  for (const std::int64_t w : w_) {
    const std::int64_t rest = w % lattice_->modulus;
    if (rest == lattice_->rest) ++first;
    if (rest != lattice_->rest && rest != lattice_->other) strange.push_back(w);
  }
  if (strange.size() > kMostStrange) return false;
  for (std::int64_t i = 0; i < fewest_; ++i) {
    for (std::int64_t j = i + 1; j <= fewest_; ++j) {
      if (line_refutes(target, i, j, first, strange)) return true;
    }
  }
  return false;
}

/// The line through the wastes of ranks with i and with j loads of the first class. All values are (j - i) times as
/// large as they are.
bool Refuter::line_refutes(std::int64_t target, std::int64_t i, std::int64_t j, std::int64_t first,
                           const List& strange) const {
  const Wide at_i = wasted(target, i, fewest_ - i, 0), at_j = wasted(target, j, fewest_ - j, 0);
  const auto line = [&](std::int64_t a) { return at_i * (j - i) + (at_j - at_i) * (a - i); };
  for (std::int64_t a = 0; a <= fewest_; ++a) {
    if (wasted(target, a, fewest_ - a, 0) * (j - i) < line(a)) return false;
  }
  Wide company = 0;  // of two or more loads of neither class
  for (std::int64_t a = 0; a <= fewest_ - 2; ++a) company = std::max(company, line(a));
  Wide twice_saved = 0;
  for (const std::int64_t w : strange) {
    Wide alone = 0;
    for (std::int64_t a = 0; a < fewest_; ++a) {
      alone = std::max(alone, line(a) - wasted(target, a, fewest_ - 1 - a, w) * (j - i));
    }
    twice_saved += std::max(2 * alone, company);
  }
  const Wide waste = line(0) * ranks() + (line(1) - line(0)) * first;
  return 2 * (Wide{target} * ranks() - total_) * (j - i) < 2 * waste - twice_saved;
}

namespace {

/// Chunks as bits that one rank could hold, and how far below the target they stay.
struct Group {
  std::uint64_t chunks;
  Refuter::Wide slack;
};

/// Covers chunks with groups: of the open chunk with the fewest groups left, every group is tried.
class Covering {
 public:
  static constexpr std::int64_t kGroupSteps = 8;  // of a group that is kept: its memory, too, is bounded by the steps
  using Wide = Refuter::Wide;
  Covering(const std::vector<std::int64_t>& loads, std::int64_t target, std::int64_t steps)
      : w_(loads), target_(target), steps_(steps) {
    for (std::size_t i = w_.size(); i-- > 0;) from_.push_back((from_.empty() ? 0 : from_.back()) + w_[i]);
    std::reverse(from_.begin(), from_.end());
    from_.push_back(0);
  }
  [[nodiscard]] bool ended() const { return steps_ <= 0; }

  /// Adds the groups of `more` chunks at or behind `next` beside those in `group` that end at most `slack` below the
  /// target.
  void collect(std::size_t next, std::size_t more, Group group, Wide slack, std::vector<Group>& out) {
    if (--steps_ <= 0) return;
    if (more == 0) {
      if (group.slack < 0 || group.slack > slack) return;
      out.push_back(group);
      steps_ -= kGroupSteps;
      return;
    }
    for (std::size_t i = next; i + more <= w_.size() && steps_ > 0; ++i) {
      const Wide heaviest = from_[i] - from_[i + more], lightest = w_[i] + from_[w_.size() - (more - 1)];
      if (group.slack - heaviest > slack) return;  // loads descend: nothing behind is heavier
      if (group.slack < lightest) continue;
      collect(i + 1, more - 1, {group.chunks | std::uint64_t{1} << i, group.slack - w_[i]}, slack, out);
    }
  }

  /// Whether `open` can be covered when all groups together leave `slack`, `large` of them with `count + 1` chunks and
  /// the others with `count`.
  bool cover(std::uint64_t open, int count, std::int64_t large, Wide slack, const std::vector<Group>& groups) {
    if (open == 0) return true;
    steps_ -= 1 + static_cast<std::int64_t>(groups.size());
    if (steps_ <= 0 || failed_.contains({open, large})) return false;
    const std::uint64_t scarce = scarcest(open, groups);
    for (const Group& g : groups) {
      if ((g.chunks & scarce) == 0) continue;
      const bool is_large = std::popcount(g.chunks) > count;
      if (is_large && large == 0) continue;
      steps_ -= static_cast<std::int64_t>(groups.size());
      if (steps_ <= 0) return false;
      std::vector<Group> left;
      for (const Group& other : groups) {
        if ((other.chunks & g.chunks) == 0 && other.slack <= slack - g.slack) left.push_back(other);
      }
      if (cover(open & ~g.chunks, count, large - is_large, slack - g.slack, left)) return true;
    }
    if (steps_ > 0) failed_.insert({open, large});
    return false;
  }

 private:
  static std::uint64_t scarcest(std::uint64_t open, const std::vector<Group>& groups) {
    std::array<std::size_t, 64> uses{};
    for (const Group& g : groups) {
      for (std::uint64_t c = g.chunks; c != 0; c &= c - 1) ++uses[static_cast<std::size_t>(std::countr_zero(c))];
    }
    int best = std::countr_zero(open);
    for (std::uint64_t c = open; c != 0; c &= c - 1) {
      const int chunk = std::countr_zero(c);
      if (uses[static_cast<std::size_t>(chunk)] < uses[static_cast<std::size_t>(best)]) best = chunk;
    }
    return std::uint64_t{1} << best;
  }

  const std::vector<std::int64_t>& w_;
  std::int64_t target_, steps_;
  std::vector<Wide> from_;  // sums of the loads from a position on
  std::set<std::pair<std::uint64_t, std::int64_t>> failed_;
};

}  // namespace

std::optional<bool> Refuter::reachable(std::int64_t target, std::int64_t steps) const {
  if (!speeds_.empty() || fewest_ < 1 || w_.size() > 64) return std::nullopt;
  const Wide slack = Wide{target} * ranks() - total_;
  if (slack < 0) return false;
  Covering covering(w_, target, steps);
  std::vector<Group> groups;
  for (std::int64_t size = fewest_; size <= most_; ++size) {
    covering.collect(0, static_cast<std::size_t>(size), {0, target}, slack, groups);
  }
  const std::uint64_t all = ~std::uint64_t{0} >> (64 - w_.size());
  const std::int64_t large = static_cast<std::int64_t>(w_.size()) - fewest_ * ranks();
  const bool found = covering.cover(all, static_cast<int>(fewest_), large, slack, groups);
  if (!found && covering.ended()) return std::nullopt;
  return found;
}

}  // namespace flashmask::balancing
