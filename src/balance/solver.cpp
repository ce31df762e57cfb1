#include "balance/solver.hpp"

#include <utility>

#include "balance/exact.hpp"
#include "balance/pairs.hpp"
#include "balance/residue_pair.hpp"
#include "balance/starts.hpp"
#include "balance/triples.hpp"

namespace flashmask::balancing {
namespace {

constexpr std::int64_t kNearMiss = 1;  // normalised units above the bound that earn a second try
constexpr std::int64_t kNearMissSteps = 128;
constexpr std::int64_t kFillAbove = 4096;  // the second fill may end one part in so many above the bound

// With many ranks one instance in forty ends far above a bound that a longer search nearly reaches. With few it is
// mostly the bound that is weak, and four times the steps move nothing.
constexpr std::int64_t kManyRanks = 64;
constexpr std::int64_t kFar = 1000;     // one part in so many above the bound
constexpr std::int64_t kMoreSteps = 4;  // times the default

/// One search with its own share of the budget.
template <typename Key>
bool attempt(PairSearch<Key>& search, std::int64_t target, std::int64_t steps, Budget& budget) {
  Budget part(std::min(steps, budget.left()), budget.deadline());
  const std::int64_t given = part.left();
  const bool reached = search.descend(target, part);
  budget.take(given - std::max<std::int64_t>(0, part.left()));
  search.restart();
  return reached;
}

/// Ranks filled at the bound and, where that fails, a little above it; the better of the two. Mask loads of long
/// documents are often met at once, where pair exchanges need a hundred times the steps.
State filled(const Instance& in, const Bound& lower) {
  State best = fill(in, lower.value);
  const std::int64_t bound = in.original(lower.value), peak = best.peak(in);
  if (peak == lower.value) return best;
  State above = fill(in, in.normalised(bound + bound / kFillAbove));
  return above.peak(in) < peak ? std::move(above) : std::move(best);
}

/// P2: straight at the bound, which either works soon or not at all; then ranks filled one after the other, and where
/// that does not reach the bound either, a ladder of targets between it and the best peak of both; then once more at
/// the bound if the exchanges ended just above it.
template <typename Key>
void run_pairs(const Instance& in, Budget budget, std::uint64_t seed, Solution& best) {
  PairSearch<Key> search(in, best.state, seed);
  const std::int64_t before = search.best_peak();
  const std::int64_t bound = best.bound.value;
  std::int64_t low = bound, known = before;
  State dense;  // no start for exchanges: it leaves all slack to the last ranks
  if (!attempt(search, low, static_cast<std::int64_t>(Int128{budget.left()} * 3 / 5), budget)) {
    if (in.speeds.empty() && !(budget.deadline() && budget.deadline()->passed())) {
      dense = filled(in, best.bound);
      known = std::min(known, dense.peak(in));
    }
    if (known > bound) ++low;
    for (std::int64_t high = 0; low < (high = std::min(known, search.best_peak())) && !budget.over();) {
      const std::int64_t target = low + (high - low) / 2;
      if (!attempt(search, target, std::max<std::int64_t>(budget.left() / 4, 48), budget)) low = target + 1;
    }
  }
  const std::int64_t reached = std::min(known, search.best_peak());
  if (reached > bound && search.best_peak() - bound <= kNearMiss) {
    Budget more(kNearMissSteps, budget.deadline());
    attempt(search, bound, kNearMissSteps, more);
  }
  if (search.best_peak() < before && search.best_peak() <= known) {
    best.state = search.best();
    best.method = PlanMethod::pairs;
  } else if (known < before) {
    best.state = std::move(dense);
    best.method = PlanMethod::fill;
  }
}

void run_triples(const Instance& in, Budget budget, Solution& best) {
  State state = best.state;
  std::int64_t low = best.bound.value, peak = state.peak(in);
  while (low < peak && !budget.over()) {
    const std::int64_t target = low + (peak - low) / 4;
    State trial = best.state;
    const bool reached = repartition_triples(in, trial, target, budget);
    if (trial.peak(in) < peak) {
      peak = trial.peak(in);
      best.state = std::move(trial);
      best.method = PlanMethod::triples;
    }
    if (!reached) low = target + 1;
  }
}

/// Bisects between the bound and the peak: a refuted target raises the bound above it, a met one lowers the peak to
/// what was found, and where the two meet the optimum is proven from both sides. From the bound the strides double,
/// because low targets leave few groups and the optimum is mostly near; a target that stays open leaves only lower ones
/// to try.
void run_exact(const Instance& in, Budget budget, Solution& best) {
  std::int64_t open = best.state.peak(in);  // targets from here on are met or were given up
  std::int64_t stride = 1;
  while (best.bound.value < open && !budget.over()) {
    const std::int64_t target = best.bound.value + std::min(stride, open - best.bound.value) - 1;
    // A target above the bound may cost half of what is left: the bound itself remains to be tried.
    Budget part(target > best.bound.value ? budget.left() / 2 : budget.left(), budget.deadline());
    const std::int64_t given = part.left();
    State found;
    const Verdict verdict = exact_cover(in, target, part, found);
    budget.take(given - std::max<std::int64_t>(0, part.left()));
    if (verdict == Verdict::infeasible) {
      best.bound = {.value = target + 1, .by = BoundBy::search};
      stride = std::min(2 * stride, std::max<std::int64_t>(1, (open - target) / 2));
      continue;
    }
    open = target;
    if (verdict == Verdict::feasible) {
      open = found.peak(in);
      best.state = std::move(found);
      best.method = PlanMethod::exact;
    }
    stride = std::max<std::int64_t>(1, (open - best.bound.value) / 2);
  }
}

bool far_above_bound(const Instance& in, const Solution& best) {
  const std::int64_t bound = in.original(best.bound.value);
  return in.original(best.state.peak(in)) - bound > bound / kFar;
}

}  // namespace

Solution solve(const Instance& in, const SolveOptions& options) {
  Solution best{lpt(in), lower_bound(in), PlanMethod::lpt};
  const auto solved = [&] { return best.state.peak(in) == best.bound.value; };
  if (in.speeds.empty() && !solved()) {
    State other = bldm(in);
    if (other.peak(in) < best.state.peak(in)) {
      best.state = std::move(other);
      best.method = PlanMethod::bldm;
    }
  }
  if (!solved()) best.bound = residue_pair_bound(in, best.bound, best.state.peak(in));
  const Budget budget(options.steps > 0 ? options.steps : default_steps(in), options.deadline);
  const auto exchange = [&](const Budget& allowed) {
    if (in.total < (std::int64_t{1} << 46)) {
      run_pairs<std::uint64_t>(in, allowed, options.seed, best);
    } else {
      run_pairs<WideKey>(in, allowed, options.seed, best);
    }
  };
  if (options.pairs && !solved()) {
    exchange(budget);
    if (options.steps == 0 && in.ranks() >= kManyRanks && far_above_bound(in, best)) {
      exchange(Budget(kMoreSteps * default_steps(in), options.deadline));
    }
  }
  if (options.triples && !solved() && triples_apply(in)) {
    run_triples(in, Budget(std::max<std::int64_t>(budget.left(), options.proof_steps / 4), options.deadline), best);
  }
  if (options.proof_steps > 0 && !solved() && exact_applies(in)) {
    run_exact(in, Budget(options.proof_steps, options.deadline), best);
  }
  return best;
}

std::int64_t default_steps(const Instance& in) {
  // Few ranks offer few exchanges: there the walk has to be longer, and is still short.
  return in.ranks() < 16 ? 4096 : 64 + 6 * in.ranks();
}

}  // namespace flashmask::balancing
