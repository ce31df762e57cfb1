// Deliberately naive, and deliberately without a function of the search: two independent computations must agree.
#include "balance/verify.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "balance/refute.hpp"
#include "balance/verify_kind.hpp"
#include "balance/verify_search.hpp"
#include "core/check.hpp"

namespace flashmask::balancing {
namespace {

using Wide = Refuter::Wide;
using List = Refuter::List;
using WideList = std::vector<Wide>;

constexpr std::int64_t kSearchSteps = 100'000'000;  // a second, more or less

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
    if (r_.tile_work && *r_.tile_work != tile_work(options)) {
      return find("the loads were counted with other tiles, costs or directions than those to verify with");
    }
    WideList loads(r_.chunk_loads.size(), 0);
    for (std::size_t m = 0; m < masks.size(); ++m) {
      const ColumnMask& mask = *masks[m].mask;
      if (mask.shape().columns != r_.columns) {
        return find("mask {} has {} columns and the plan deals {} tokens: name the mask that the plan was made for", m,
                    mask.shape().columns, r_.columns);
      }
      if (mask.shape().rows != r_.columns) {
        return find("mask {} has {} rows and {} columns: a plan is one of a square mask", m, mask.shape().rows,
                    r_.columns);
      }
      const WideList own = loads_of(mask, options);
      for (std::size_t c = 0; c < loads.size(); ++c) {
        if (own[c] > kMostLoad) return find("mask {} gives chunk {} a load above 2^62", m, c);
        loads[c] += masks[m].weight * own[c];
      }
    }
    for (std::size_t c = 0; c < loads.size(); ++c) {
      if (loads[c] != r_.chunk_loads[c]) {
        const bool shown = loads[c] <= kMostLoad;
        return find("chunk_loads[{}] = {} but the masks give {}", c, r_.chunk_loads[c],
                    shown ? std::to_string(static_cast<std::int64_t>(loads[c])) : "more than 2^62");
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
    const List sums = rank_sums(r_, r_.assignment);
    if (sums != r_.loads) find("the loads by rank do not follow from the assignment");
    const std::int64_t peak = last_end(r_, sums);
    if (peak != r_.peak) find("peak = {} but the assignment gives {}", r_.peak, peak);
  }

  void bound() {
    if (r_.lower_bound > r_.peak) find("lower_bound = {} exceeds the peak {}", r_.lower_bound, r_.peak);
    if (r_.proven_optimal != (r_.lower_bound == r_.peak)) find("proven_optimal does not follow from peak and bound");
    if (r_.assignment.empty()) {
      out_.bound = BoundCheck::trivial;
      if (r_.bound_by != BoundBy::average)
        find("bound_by is {}, but there is nothing to bound", to_string(r_.bound_by));
      return;
    }
    const Refuter refuter(r_, counts_);
    if (refuter.refuted(r_.peak)) find("the peak {} is impossible for these loads", r_.peak);
    r_.bound_by == BoundBy::search ? searched(refuter) : argued(refuter);
    if (out_.passed()) others(refuter);
  }

  /// A bound by an argument: it gives this number and no larger one.
  void argued(const Refuter& refuter) {
    const std::string_view by = to_string(r_.bound_by);
    out_.bound = r_.lower_bound == 0 ? BoundCheck::trivial : BoundCheck::recomputed;
    if (r_.bound_by == BoundBy::residue && !r_.residue) {
      out_.bound = BoundCheck::not_rechecked;
      out_.not_rechecked = core::format(
          "bound not rechecked: lower_bound = {} is by residue, but the file does not name the lattice (residue: "
          "modulus, rest), as files before version 3 do not; plan again for one that does",
          r_.lower_bound);
      return;
    }
    if (r_.lower_bound > 0 && !refuter.refuted_by(r_.bound_by, r_.lower_bound - 1)) {
      find("lower_bound = {} does not follow from the argument it names, {}", r_.lower_bound, by);
    }
    // With two classes the planner looks at some targets and lines, not at all of them.
    if (!(r_.residue && r_.residue->other >= 0) && refuter.refuted_by(r_.bound_by, r_.lower_bound)) {
      find("lower_bound = {}, but the argument it names, {}, gives more", r_.lower_bound, by);
    }
  }

  /// The bound is the strongest there is, by the first argument of this order that gives it. Residue and search are no
  /// part of that: which lattices and targets they look at is the affair of the planner.
  void others(const Refuter& refuter) {
    bool before = true;
    for (const BoundBy other :
         {BoundBy::average, BoundBy::counts, BoundBy::pigeonhole, BoundBy::incompatible, BoundBy::covering}) {
      before = before && other != r_.bound_by;
      if (other == r_.bound_by) continue;
      if (refuter.refuted_by(other, r_.lower_bound)) {
        find("lower_bound = {} by {}, but {} gives more", r_.lower_bound, to_string(r_.bound_by), to_string(other));
      } else if (before && (r_.lower_bound == 0 || refuter.refuted_by(other, r_.lower_bound - 1))) {
        find("bound_by is {}, but {} gives lower_bound = {} already", to_string(r_.bound_by), to_string(other),
             r_.lower_bound);
      } else {
        continue;
      }
      return;
    }
  }

  /// A bound by complete search: refuted again by an argument, or by a search of our own, or left open in words.
  void searched(const Refuter& refuter) {
    if (r_.kind != PlanKind::hcc_ipo) return find("bound_by is search, but kind {} never searches", to_string(r_.kind));
    if (!search_fits(r_)) {
      return find("bound_by is search, but no complete search takes {} chunks on {} ranks{}; it takes {}",
                  r_.assignment.size(), r_.ranks, r_.speeds.empty() ? "" : " with speeds", kSearchTakes);
    }
    if (r_.lower_bound == 0) return find("bound_by is search, but lower_bound is 0, which no search has to show");
    out_.bound = BoundCheck::recomputed;
    if (refuter.refuted(r_.lower_bound - 1)) return;
    out_.bound = BoundCheck::searched;
    const auto smaller = refuter.reachable(r_.lower_bound - 1, kSearchSteps);
    if (!smaller) {
      out_.bound = BoundCheck::not_rechecked;
      out_.not_rechecked = core::format(
          "bound not rechecked: lower_bound = {} rests on a complete search that was not repeated within {} steps",
          r_.lower_bound, kSearchSteps);
    } else if (*smaller) {
      find("lower_bound = {} but an assignment with a smaller peak exists", r_.lower_bound);
    }
  }

  /// sum += times * rows; false where that is beyond 64 bits.
  static bool add_rows(std::int64_t& sum, std::int64_t times, std::int64_t rows) {
    std::int64_t product = 0;
    return !__builtin_mul_overflow(times, rows, &product) && !__builtin_add_overflow(sum, product, &sum);
  }

  /// Every delivery one by one: rank k needs chunk j of batch row b when one of its chunks does and j is not its own.
  /// Ranks ascend, and with them nodes, so a chunk that a rank or node needs again is known by the last that did.
  void traffic() {
    const std::size_t chunks = r_.assignment.size();
    List inbound, outbound;
    if (!r_.needs.empty()) {
      inbound.assign(static_cast<std::size_t>(r_.nodes), 0);
      outbound = inbound;
    }
    std::vector<List> chunks_of(static_cast<std::size_t>(r_.ranks));
    for (std::size_t i = 0; i < chunks; ++i) {
      chunks_of[static_cast<std::size_t>(r_.assignment[i])].push_back(static_cast<std::int64_t>(i));
    }
    Traffic all;
    for (const NeedSets& need : r_.needs) {
      for (std::int64_t b = 0; b < need.batch(); ++b) {
        List by_rank(chunks, -1), by_node(chunks, -1);  // who needed a chunk last
        for (std::int64_t k = 0; k < r_.ranks; ++k) {
          for (const std::int64_t i : chunks_of[static_cast<std::size_t>(k)]) {
            for (const ChunkRun& run : need.row(b, i)) {
              for (std::int64_t j = run.begin; j < run.end; ++j) {
                const auto at = static_cast<std::size_t>(j);
                const std::int64_t owner = r_.assignment[at], home = owner * r_.nodes / r_.ranks;
                if (k == owner || std::exchange(by_rank[at], k) == k) continue;
                const std::int64_t node = k * r_.nodes / r_.ranks, rows = std::min(r_.chunk, r_.columns - j * r_.chunk);
                const bool crosses = node != home && std::exchange(by_node[at], node) != node;
                (crosses ? all.inter_chunks : all.intra_chunks) += need.weight;
                if (!add_rows(crosses ? all.inter_rows : all.intra_rows, need.weight, rows)) {
                  return find("the traffic is 2^63 rows or more");
                }
                if (!crosses) continue;
                inbound[static_cast<std::size_t>(node)] += need.weight;
                outbound[static_cast<std::size_t>(home)] += need.weight;
              }
            }
          }
        }
      }
    }
    if (inbound != r_.inbound) find("inbound_chunks do not follow from assignment and need sets");
    if (outbound != r_.outbound) find("outbound_chunks do not follow from assignment and need sets");
    if (all != r_.traffic) find("the traffic does not follow from assignment and need sets");
  }

  /// Cells from the dense row counts; tile costs from the tile room, which owns the rule.
  WideList loads_of(const ColumnMask& mask, const WorkloadOptions& options) const {
    WideList loads(r_.chunk_loads.size(), 0);
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
      for (std::size_t c = 0; c < loads.size(); ++c) loads[c] += Wide{calls} * one[c];
    }
    return loads;
  }

  void needs(std::size_t m, const WeightedMask& mask) {
    const NeedSets& need = r_.needs[m];
    const NeedRuns fresh = NeedRuns::build(*mask.mask, r_.chunk);
    if (need.weight != mask.weight || need.batch() != fresh.batch()) {
      return find("need sets of mask {}: {} batch rows of weight {}", m, need.batch(), need.weight);
    }
    for (std::int64_t b = 0; b < need.batch(); ++b) {
      for (std::int64_t i = 0; i < need.chunks(); ++i) {
        if (std::ranges::equal(need.row(b, i), fresh.row(b, i))) continue;
        std::int64_t j = 0;
        while (need.needs(b, i, j) == fresh.needs(b, i, j)) ++j;
        return find("need sets of mask {}: batch row {}, chunk {} and chunk {} disagree with the mask", m, b, i, j);
      }
    }
  }

  const PlanRecord& r_;
  Verification& out_;
  List counts_;
};

}  // namespace

std::string_view to_string(BoundCheck check) {
  constexpr std::array<std::string_view, 4> names{"trivial", "recomputed", "searched", "not_rechecked"};
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
  if (out.passed()) {
    if (std::string finding = search_finding(record); !finding.empty()) out.findings.push_back(std::move(finding));
    out.claims = search_claims(record);
  }
  if (!masks.empty() && out.passed()) verifier.masks(masks, options);
  return out;
}

}  // namespace flashmask::balancing
