// Deliberately naive, and deliberately without a function of the search: two independent computations must agree.
#include "balance/verify.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "balance/verify_kind.hpp"
#include "core/check.hpp"

namespace flashmask::balancing {
namespace {

__extension__ typedef __int128 Wide;
using List = std::vector<std::int64_t>;

/// Refutes targets for given loads, heaviest first.
class Refuter {
 public:
  Refuter(const PlanRecord& record, List counts) : w_(record.chunk_loads), counts_(std::move(counts)) {
    std::sort(w_.rbegin(), w_.rend());
    total_ = std::accumulate(w_.begin(), w_.end(), std::int64_t{0});
    fewest_ = *std::min_element(counts_.begin(), counts_.end());
    speeds_ = record.speeds;
    if (!speeds_.empty()) fastest_ = *std::max_element(speeds_.begin(), speeds_.end());
  }

  /// Whether some argument shows that no assignment has a peak of at most `target`.
  [[nodiscard]] bool refuted(std::int64_t target) const {
    target -= beyond_lattice(target);
    return average(target) || pigeonhole(target) || covering(target) || apart(target) || residues(target);
  }

  /// Whether trying everything shows it; only for few chunks.
  [[nodiscard]] bool refuted_by_enumeration(std::int64_t target) const {
    List sums(counts_.size(), 0), left = counts_;
    return !place(0, target, sums, left);
  }

  [[nodiscard]] bool enumerable() const { return w_.size() <= (speeds_.empty() ? 15U : 10U); }

 private:
  [[nodiscard]] std::int64_t ranks() const { return static_cast<std::int64_t>(counts_.size()); }
  [[nodiscard]] Wide capacity(std::size_t rank, std::int64_t target) const {
    return speeds_.empty() ? Wide{target} : Wide{target} * speeds_[rank] / fastest_;
  }
  [[nodiscard]] Wide sum(std::size_t from, std::size_t count) const {
    Wide s = 0;
    for (std::size_t i = from; i < std::min(w_.size(), from + count); ++i) s += w_[i];
    return s;
  }
  [[nodiscard]] Wide smallest(std::int64_t count) const {
    const std::size_t k =
        static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, static_cast<std::int64_t>(w_.size())));
    return sum(w_.size() - k, k);
  }

  /// How far `target` lies above the next value that the load of any rank can have: loads share a divisor, and with
  /// equal counts their differences do.
  [[nodiscard]] std::int64_t beyond_lattice(std::int64_t target) const {
    if (!speeds_.empty()) return 0;
    const bool equal = *std::max_element(counts_.begin(), counts_.end()) == fewest_;
    const std::int64_t base = equal ? w_.back() : 0;
    std::int64_t divisor = 0;
    for (const std::int64_t w : w_) divisor = std::gcd(divisor, w - base);
    if (divisor == 0) return 0;
    const auto beyond = static_cast<std::int64_t>((Wide{target} - Wide{base} * fewest_) % divisor);
    return beyond < 0 ? beyond + divisor : beyond;
  }

  [[nodiscard]] bool average(std::int64_t target) const {
    Wide room = 0;
    for (std::size_t r = 0; r < counts_.size(); ++r) room += capacity(r, target);
    return room < total_;
  }
  [[nodiscard]] bool pigeonhole(std::int64_t target) const {
    for (std::size_t j = 0; j * counts_.size() < w_.size(); ++j) {
      const std::size_t top = j * counts_.size() + 1;
      if (sum(top - j - 1, j + 1) + smallest(fewest_ - static_cast<std::int64_t>(j) - 1) > target) return true;
    }
    return false;
  }
  [[nodiscard]] bool covering(std::int64_t target) const {
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
  [[nodiscard]] bool apart(std::int64_t target) const {
    const std::int64_t n = static_cast<std::int64_t>(w_.size());
    const std::int64_t most = *std::max_element(counts_.begin(), counts_.end());
    for (std::int64_t each = 1; each <= most; ++each) {
      for (std::int64_t s = 1; s <= ranks() && (each - 1) * ranks() + s <= n; ++s) {
        const std::int64_t q = (each - 1) * ranks() + s;
        const auto lightest = [&](std::int64_t k) {
          return sum(static_cast<std::size_t>(q - k), static_cast<std::size_t>(k)) +
                 smallest(std::min(n - q, fewest_ - each - 1));
        };
        if (each + 1 <= most && each + 1 <= q && lightest(each + 1) <= target) continue;  // some rank can hold more
        const Wide held = sum(static_cast<std::size_t>(q - each * s), static_cast<std::size_t>(each * s)) +
                          smallest(std::min(n - q, std::max<std::int64_t>(0, fewest_ - each) * s));
        if (held > Wide{s} * target) return true;
      }
    }
    return false;
  }

  /// The residue argument for every modulus up to 2^14 and the residue most loads share.
  [[nodiscard]] bool residues(std::int64_t target) const {
    if (!speeds_.empty()) return false;
    // A modulus under which few loads differ divides the differences of most small samples; the divisor of all
    // differences counts too (a peak between two points of that lattice does not exist).
    std::set<std::int64_t> moduli;
    std::int64_t all = 0;
    for (const std::int64_t w : w_) all = std::gcd(all, w_[0] - w);
    if (all >= 2) moduli.insert(all);
    for (const std::size_t stride : {1U, 2U, 3U, 5U, 7U, 11U, 13U, 29U}) {
      for (std::size_t i = 0; i + stride < w_.size(); ++i) {
        std::int64_t g = 0;
        for (std::size_t k = 1; k <= 5; ++k) {
          g = std::gcd(g, w_[i] - w_[(i + k * stride) % w_.size()]);
          if (g >= 2 && g <= (1 << 14)) moduli.insert(g);
        }
      }
    }
    return std::any_of(moduli.begin(), moduli.end(), [&](std::int64_t g) { return residue(target, g); });
  }
  [[nodiscard]] bool residue(std::int64_t target, std::int64_t modulus) const {
    std::map<std::int64_t, std::int64_t> seen;
    for (const std::int64_t w : w_) ++seen[w % modulus];
    const std::int64_t common = std::max_element(seen.begin(), seen.end(), [](const auto& a, const auto& b) {
                                  return a.second < b.second;
                                })->first;
    const auto wasted = [&](std::int64_t count) {
      const Wide t = (Wide{target} - Wide{count} * common) % modulus;
      return static_cast<std::int64_t>(t < 0 ? t + modulus : t);
    };
    Wide waste = 0, twice_saved = 0;
    std::int64_t most = 0;
    for (const std::int64_t k : counts_) waste += wasted(k), most = std::max(most, wasted(k));
    for (const std::int64_t w : w_) {
      const std::int64_t offset = (w % modulus - common + modulus) % modulus;
      if (offset == 0) continue;
      twice_saved += std::max<std::int64_t>(most, offset <= most ? 2 * offset : 0);
    }
    return 2 * (Wide{target} * ranks() - total_) < 2 * waste - twice_saved;
  }

  bool place(std::size_t i, std::int64_t target, List& sums, List& left) const {
    if (i == w_.size()) return true;
    for (std::size_t r = 0; r < sums.size(); ++r) {
      if (left[r] == 0 || sums[r] + w_[i] > capacity(r, target)) continue;
      --left[r];
      sums[r] += w_[i];
      const bool found = place(i + 1, target, sums, left);
      sums[r] -= w_[i];
      ++left[r];
      if (found) return true;
      if (sums[r] == 0 && speeds_.empty() && left[r] == left[left.size() - 1]) return false;  // empty twins
    }
    return false;
  }

  List w_, counts_, speeds_;
  std::int64_t total_ = 0, fewest_ = 0, fastest_ = 1;
};

class Verifier {
 public:
  Verifier(const PlanRecord& record, Verification& out) : r_(record), out_(out) {}

  void run() {
    ownership();
    if (!out_.passed()) return;
    loads();
    bound();
    traffic();
  }

  void masks(std::span<const WeightedMask> masks, const WorkloadOptions& options) {
    out_.against_masks = true;
    if (r_.chunk != options.chunk) return find("the plan cuts chunks of {} tokens, not {}", r_.chunk, options.chunk);
    List loads(r_.chunk_loads.size(), 0);
    for (std::size_t m = 0; m < masks.size(); ++m) {
      const ColumnMask& mask = *masks[m].mask;
      if (mask.shape().columns != r_.columns) return find("mask {} has {} columns", m, mask.shape().columns);
      const List own = loads_of(mask, options);
      for (std::size_t c = 0; c < loads.size(); ++c) loads[c] += masks[m].weight * own[c];
    }
    for (std::size_t c = 0; c < loads.size(); ++c) {
      if (loads[c] != r_.chunk_loads[c]) {
        return find("chunk_loads[{}] = {} but the masks give {}", c, r_.chunk_loads[c], loads[c]);
      }
    }
    if (r_.needs.size() != masks.size()) return find("need sets of {} masks, not {}", r_.needs.size(), masks.size());
    for (std::size_t m = 0; m < masks.size(); ++m) needs(m, masks[m]);
  }

 private:
  template <typename... Args>
  void find(fmt::format_string<Args...> text, Args&&... args) {
    out_.findings.push_back(core::vformat(text, fmt::make_format_args(args...)));
  }

  /// (-speed, rank) in ascending order.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> fastest_first() const {
    std::vector<std::pair<std::int64_t, std::int64_t>> order;
    for (std::size_t k = 0; k < counts_.size(); ++k) {
      order.emplace_back(r_.speeds.empty() ? 0 : -r_.speeds[k], static_cast<std::int64_t>(k));
    }
    std::sort(order.begin(), order.end());
    return order;
  }

  void ownership() {
    counts_.assign(static_cast<std::size_t>(r_.ranks), 0);
    for (std::size_t c = 0; c < r_.assignment.size(); ++c) {
      if (r_.assignment[c] < 0 || r_.assignment[c] >= r_.ranks) {
        return find("chunk {} is given to rank {} of {}", c, r_.assignment[c], r_.ranks);
      }
      ++counts_[static_cast<std::size_t>(r_.assignment[c])];
    }
    const std::int64_t fewest = static_cast<std::int64_t>(r_.assignment.size()) / r_.ranks;
    std::int64_t more = static_cast<std::int64_t>(r_.assignment.size()) % r_.ranks;
    for (const auto& [speed, rank] : fastest_first()) {
      const std::int64_t due = fewest + (more-- > 0 ? 1 : 0), own = counts_[static_cast<std::size_t>(rank)];
      if (own == due) continue;
      find("rank {} owns {} chunks, not {}: the fastest ranks, of equal ones the first, own one more", rank, own, due);
      break;
    }
    if (r_.chunk < 1 || (r_.columns + r_.chunk - 1) / r_.chunk != static_cast<std::int64_t>(r_.assignment.size())) {
      find("{} columns in chunks of {} are not {} chunks", r_.columns, r_.chunk, r_.assignment.size());
    }
    if (r_.chunk_loads.size() != r_.assignment.size()) find("{} chunk loads", r_.chunk_loads.size());
    if (r_.nodes < 1 || r_.nodes > r_.ranks) find("{} nodes for {} ranks", r_.nodes, r_.ranks);
  }

  void loads() {
    List sums(static_cast<std::size_t>(r_.ranks), 0);
    for (std::size_t c = 0; c < r_.assignment.size(); ++c) {
      sums[static_cast<std::size_t>(r_.assignment[c])] += r_.chunk_loads[c];
    }
    if (sums != r_.loads) find("the loads by rank do not follow from the assignment");
    std::int64_t fastest = 1, peak = 0;
    for (const std::int64_t s : r_.speeds) fastest = std::max(fastest, s);
    for (std::size_t k = 0; k < sums.size(); ++k) {
      const std::int64_t own = r_.speeds.empty() ? fastest : r_.speeds[k];
      peak = std::max(peak, static_cast<std::int64_t>((Wide{sums[k]} * fastest + own - 1) / own));
    }
    if (peak != r_.peak) find("peak = {} but the assignment gives {}", r_.peak, peak);
  }

  void bound() {
    if (r_.lower_bound > r_.peak) find("lower_bound = {} exceeds the peak {}", r_.lower_bound, r_.peak);
    if (r_.proven_optimal != (r_.lower_bound == r_.peak)) find("proven_optimal does not follow from peak and bound");
    if (r_.lower_bound == 0) {
      out_.bound = BoundCheck::trivial;
      return;
    }
    if (r_.assignment.empty()) {
      out_.bound = BoundCheck::recomputed;
      return;
    }
    const Refuter refuter(r_, counts_);
    if (refuter.refuted(r_.peak)) find("the peak {} is impossible for these loads", r_.peak);
    if (refuter.refuted(r_.lower_bound - 1)) {
      out_.bound = BoundCheck::recomputed;
    } else if (refuter.enumerable()) {
      out_.bound = BoundCheck::enumerated;
      if (!refuter.refuted_by_enumeration(r_.lower_bound - 1)) {
        find("lower_bound = {} but an assignment with a smaller peak exists", r_.lower_bound);
      }
    } else if (r_.bound_by != BoundBy::search) {
      find("lower_bound = {} does not follow from the argument it names", r_.lower_bound);
    }
  }

  /// Every delivery one by one: rank k needs chunk j of batch row b when one of its chunks does and j is not its own.
  void traffic() {
    const std::int64_t chunks = static_cast<std::int64_t>(r_.assignment.size());
    List inbound, outbound;
    if (!r_.needs.empty()) {
      inbound.assign(static_cast<std::size_t>(r_.nodes), 0);
      outbound = inbound;
    }
    Traffic all;
    for (const NeedSets& need : r_.needs) {
      for (std::int64_t b = 0; b < need.batch; ++b) {
        for (std::int64_t j = 0; j < chunks; ++j) {
          const std::int64_t owner = r_.assignment[static_cast<std::size_t>(j)];
          const std::int64_t home = owner * r_.nodes / r_.ranks;
          const std::int64_t rows = std::min(r_.chunk, r_.columns - j * r_.chunk);
          std::set<std::int64_t> needers, remote;
          for (std::int64_t i = 0; i < chunks; ++i) {
            const std::int64_t k = r_.assignment[static_cast<std::size_t>(i)];
            if (k == owner || !need.needs(b, i, j)) continue;
            needers.insert(k);
            if (k * r_.nodes / r_.ranks != home) remote.insert(k * r_.nodes / r_.ranks);
          }
          const std::int64_t crossings = need.weight * static_cast<std::int64_t>(remote.size());
          const std::int64_t inside = need.weight * static_cast<std::int64_t>(needers.size()) - crossings;
          for (const std::int64_t n : remote) inbound[static_cast<std::size_t>(n)] += need.weight;
          outbound[static_cast<std::size_t>(home)] += crossings;
          all.inter_chunks += crossings;
          all.intra_chunks += inside;
          all.inter_rows += crossings * rows;
          all.intra_rows += inside * rows;
        }
      }
    }
    if (inbound != r_.inbound) find("inbound_chunks do not follow from assignment and need sets");
    if (outbound != r_.outbound) find("outbound_chunks do not follow from assignment and need sets");
    if (all != r_.traffic) find("the traffic does not follow from assignment and need sets");
  }

  /// Cells from the dense row counts; tile costs from the tile room, which owns the rule.
  List loads_of(const ColumnMask& mask, const WorkloadOptions& options) const {
    List loads(r_.chunk_loads.size(), 0);
    if (r_.unit == WorkUnit::cells) {
      for (std::int64_t b = 0; b < mask.shape().batch; ++b) {
        for (std::int64_t h = 0; h < mask.shape().heads; ++h) {
          const List rows = mask.row_counts(b, h);
          for (std::size_t i = 0; i < rows.size(); ++i) loads[i / static_cast<std::size_t>(r_.chunk)] += rows[i];
        }
      }
      return loads;
    }
    for (const auto& [calls, costs] : {std::pair{options.forward_weight, options.costs.forward},
                                       std::pair{options.backward_weight, options.costs.backward}}) {
      if (calls == 0) continue;
      const List one =
          chunk_loads(mask, r_.chunk, {.unit = LoadUnit::tiles, .tile_shape = options.tile_shape, .costs = costs});
      for (std::size_t c = 0; c < loads.size(); ++c) loads[c] += calls * one[c];
    }
    return loads;
  }

  void needs(std::size_t m, const WeightedMask& mask) {
    const NeedSets& need = r_.needs[m];
    const NeedMatrix fresh = NeedMatrix::build(*mask.mask, r_.chunk);
    if (need.weight != mask.weight || need.batch != fresh.batch()) {
      return find("need sets of mask {}: {} batch rows of weight {}", m, need.batch, need.weight);
    }
    for (std::int64_t b = 0; b < need.batch; ++b) {
      for (std::int64_t i = 0; i < need.chunks; ++i) {
        for (std::int64_t j = 0; j < need.chunks; ++j) {
          if (need.needs(b, i, j) != fresh.needs(b, i, j)) {
            return find("need sets of mask {}: batch row {}, chunk {} and chunk {} disagree with the mask", m, b, i, j);
          }
        }
      }
    }
  }

  const PlanRecord& r_;
  Verification& out_;
  List counts_;
};

}  // namespace

std::string_view to_string(BoundCheck check) {
  constexpr std::array<std::string_view, 4> names{"trivial", "recomputed", "enumerated", "trusted"};
  return names.at(static_cast<std::size_t>(check));
}

Verification verify(const PlanRecord& record, std::span<const WeightedMask> masks, const WorkloadOptions& options,
                    std::span<const std::int64_t> documents) {
  Verification out;
  Verifier verifier(record, out);
  verifier.run();
  if (out.passed()) {
    if (std::string finding = kind_finding(record, documents); !finding.empty())
      out.findings.push_back(std::move(finding));
  }
  if (!masks.empty() && out.passed()) verifier.masks(masks, options);
  return out;
}

}  // namespace flashmask::balancing
