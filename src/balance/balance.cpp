// The entry: workload in, checked plan out.
#include <algorithm>
#include <utility>

#include "balance/bounds.hpp"
#include "balance/hierarchy.hpp"
#include "balance/layouts.hpp"
#include "balance/solver.hpp"
#include "balance/starts.hpp"
#include "balance/traffic.hpp"
#include "flashmask/balance.hpp"

namespace flashmask {
namespace {

using Ranks = std::vector<std::int32_t>;

struct Found {
  Ranks rank_of;           ///< the rank of each chunk, as the caller numbers them
  balancing::Bound bound;  ///< normalised
  PlanMethod method = PlanMethod::layout;
};

/// Places become the ranks that stand there.
Ranks renumbered(Ranks place_of, const Ranks& rank_at) {
  for (std::int32_t& r : place_of) r = rank_at[static_cast<std::size_t>(r)];
  return place_of;
}

/// The lattice of a bound by residue in the units of the workload: of its loads as they are, not normalised.
ResidueLattice lattice_of(const balancing::Instance& in, const balancing::Bound& bound) {
  const std::int64_t modulus = in.scale * bound.modulus;  // at most a difference of two loads
  const auto rest = [&](std::int64_t load) { return (in.scale * load + in.offset) % modulus; };
  return {modulus, rest(bound.rest), bound.other < 0 ? -1 : rest(bound.other)};
}

using Clock = std::chrono::steady_clock;

/// How long what follows the search will take: mostly traffic and digest. Every assignment costs about as much, so one
/// is counted to know, and half of that is added for the rest.
Clock::duration time_to_finish(const PlanRecord& record) {
  const Clock::time_point start = Clock::now();
  std::vector<std::int64_t> in_turn(record.chunk_loads.size());
  for (std::size_t c = 0; c < in_turn.size(); ++c) in_turn[c] = static_cast<std::int64_t>(c) % record.ranks;
  balancing::count_traffic(record.needs, in_turn, record.ranks, record.nodes, record.columns, record.chunk);
  plan_digest(record);
  return (Clock::now() - start) * 3 / 2;
}

Found search(const Workload& workload, const balancing::Instance& in, const Ranks& rank_at,
             const BalanceOptions& options, const std::optional<balancing::Deadline>& deadline) {
  Ranks counts(in.counts.size());  // by rank: a layout walks the ranks by number
  for (std::size_t place = 0; place < counts.size(); ++place) {
    counts[static_cast<std::size_t>(rank_at[place])] = in.counts[place];
  }
  switch (options.kind) {
    case PlanKind::contiguous:
      return {balancing::contiguous(counts), balancing::lower_bound(in), PlanMethod::layout};
    case PlanKind::dual_chunk:
      return {balancing::dual_chunk(counts), balancing::lower_bound(in), PlanMethod::layout};
    case PlanKind::per_document_dual_chunk:
      return {balancing::per_document_dual_chunk(workload), balancing::lower_bound(in), PlanMethod::layout};
    case PlanKind::lpt:
      return {renumbered(balancing::lpt(in).rank_of(), rank_at), balancing::lower_bound(in), PlanMethod::lpt};
    case PlanKind::hcc_ipo:
      break;
  }
  balancing::SolveOptions solve{
      .seed = options.seed, .steps = options.steps, .proof_steps = options.proof_steps, .deadline = deadline};
  balancing::HierarchyOptions hierarchy{.nodes = workload.nodes, .epsilon_millionths = options.epsilon_millionths};
  for (const std::int64_t rank : rank_at) hierarchy.node_of.push_back(rank * workload.nodes / workload.ranks);
  const bool alike = workload.nodes == 1 || workload.needs.empty();
  const balancing::Solution best =
      alike ? balancing::solve(in, solve) : balancing::solve_on_nodes(in, workload.needs, hierarchy, solve);
  return {renumbered(best.state.rank_of(), rank_at), best.bound, best.method};
}

}  // namespace

Plan balance(const Workload& workload, const BalanceOptions& options) {
  const Clock::time_point start = Clock::now();
  validate(workload);
  validate(options);
  PlanRecord record;
  record.chunk = workload.chunk;
  record.columns = workload.columns > 0 ? workload.columns : workload.chunks() * workload.chunk;
  record.ranks = workload.ranks;
  record.nodes = workload.nodes;
  record.kind = options.kind;
  record.unit = workload.unit;
  record.chunk_loads = workload.loads;
  record.speeds = balancing::lowest_terms(workload.speeds);  // nothing from here on looks at those of the workload
  record.tile_work = workload.tile_work;
  record.needs = workload.needs;
  record.seed = options.kind == PlanKind::hcc_ipo ? options.seed : 0;
  record.epsilon_millionths = options.kind == PlanKind::hcc_ipo ? options.epsilon_millionths : 0;
  record.loads.assign(static_cast<std::size_t>(workload.ranks), 0);
  const Ranks rank_at = balancing::rank_at_place(workload.ranks, record.speeds);
  std::vector<std::int64_t> speeds;
  for (std::size_t place = 0; place < rank_at.size() && !record.speeds.empty(); ++place) {
    speeds.push_back(record.speeds[static_cast<std::size_t>(rank_at[place])]);
  }
  const balancing::Instance in = balancing::make_instance(
      workload.loads, balancing::chunk_counts(workload.chunks(), workload.ranks), std::move(speeds));
  if (in.chunks() > 0) {
    std::optional<balancing::Deadline> deadline;
    if (options.time_budget) {  // the clock has a last moment, and the longest budgets reach beyond it
      const Clock::duration budget = std::min<Clock::duration>(*options.time_budget, Clock::time_point::max() - start);
      deadline.emplace(start + budget - time_to_finish(record));
    }
    const Found found = search(workload, in, rank_at, options, deadline);
    record.method = found.method;
    record.assignment.assign(found.rank_of.begin(), found.rank_of.end());
    for (std::size_t c = 0; c < record.assignment.size(); ++c) {
      record.loads[static_cast<std::size_t>(record.assignment[c])] += workload.loads[c];
    }
    for (std::size_t place = 0; place < rank_at.size(); ++place) {
      const std::int64_t load = record.loads[static_cast<std::size_t>(rank_at[place])];
      record.peak = std::max(record.peak, in.time(static_cast<std::int64_t>(place), load));
    }
    record.lower_bound = in.original(found.bound.value);
    record.bound_by = found.bound.by;
    if (found.bound.by == BoundBy::residue) record.residue = lattice_of(in, found.bound);
  }
  record.proven_optimal = record.peak == record.lower_bound;
  auto report = balancing::count_traffic(record.needs, record.assignment, record.ranks, record.nodes, record.columns,
                                         record.chunk);
  record.inbound = std::move(report.inbound);
  record.outbound = std::move(report.outbound);
  record.traffic = report.traffic;
  return Plan(std::move(record), Plan::Traffics::as_counted);
}

}  // namespace flashmask
