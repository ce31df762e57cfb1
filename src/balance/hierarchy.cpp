#include "balance/hierarchy.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "balance/node_search.hpp"
#include "balance/node_walk.hpp"
#include "balance/pairs.hpp"
#include "balance/repair.hpp"
#include "balance/starts.hpp"

namespace flashmask::balancing {
namespace {

constexpr std::int64_t kMostPerNode = 65'535;  // NodeTraffic counts in 16 bits
// Pair exchanges inside one node: 400 gave the same plans and a third more time, in rounds of trades that failed.
constexpr std::int64_t kNodeSteps = 50;
constexpr std::int64_t kTradedNodeSteps = 16;  // after a trade, when the next one follows: the same traffic
// With few nodes several short searches from the start find less traffic than one long one (five on 2 nodes: 8% less);
// with many nodes one long search does.
constexpr std::int64_t kStarts = 10;  // over the number of nodes
// Searches of the full effort over this, one after the other: by the clock from a short one on, by steps the full one.
constexpr std::array<std::int64_t, 1> kBySteps = {1};
constexpr std::array<std::int64_t, 3> kByClock = {16, 4, 1};
constexpr std::int64_t kDear = 16;         // trades that add more than one part in so many are walked over again
constexpr std::int64_t kLittle = 32;       // less than one part in so many is hardly a gain
constexpr std::int64_t kShareOfRanks = 8;  // an eighth of the allowance is left to stage 3
constexpr std::int64_t kFewNodes = 16;     // counted to know what counting takes
constexpr std::int64_t kCounts = 3;        // of the traffic of every node, before a search moves anything
constexpr std::uint64_t kSeedStride = 0x9e37;
// Swaps looked at, about a tenth of a microsecond each. A round looks at all ranks, and there are more rounds with more
// of them: with 600 a rank six of twelve plans for 64 nodes ended unfinished, and the walk behind it took longer.
constexpr std::int64_t kTradeSteps = 300'000;
constexpr std::int64_t kTradeStepsOfRank = 10'000;

/// The largest normalised target within (1 + epsilon) times the bound in the units of the workload.
std::int64_t relaxed_target(const Instance& in, std::int64_t bound, std::int64_t epsilon_millionths) {
  const Int128 original = in.original(bound);
  const Int128 relaxed = original + original * epsilon_millionths / 1'000'000;
  return in.normalised(static_cast<std::int64_t>(std::min(relaxed, Int128{kMostLoad})));
}

/// A plan and what its worst node receives.
struct Offer {
  State state;
  std::int64_t worst;
};

/// One attempt at a plan with less traffic than the flat one.
class Hierarchy {
 public:
  Hierarchy(const Instance& in, std::span<const NeedSets> needs, const HierarchyOptions& options,
            const SolveOptions& solve)
      : in_(in),
        needs_(needs),
        options_(options),
        solve_(solve),
        ranks_of_(static_cast<std::size_t>(options.nodes)),
        rank_of_(in.loads.size(), 0) {
    for (std::int64_t r = 0; r < in.ranks(); ++r) ranks_of_[static_cast<std::size_t>(node_of_rank(r))].push_back(r);
    if (solve.deadline) counting_ = time_to_count();
  }

  /// Whether the deadline leaves time for what an attempt does without a look at the clock.
  [[nodiscard]] bool time_left() const { return !solve_.deadline || solve_.deadline->left() > kCounts * counting_; }

  [[nodiscard]] std::int64_t worst_inbound(const State& state) const {
    std::vector<std::int32_t> node_of = state.rank_of();
    for (std::int32_t& r : node_of) r = static_cast<std::int32_t>(node_of_rank(r));
    return NodeTraffic(needs_, options_.nodes, node_of).worst();
  }

  /// A state within `target` that was built for little traffic, or where the nodes cannot hold one, reached from `flat`
  /// without leaving the target. Under a deadline short searches come before the full ones and the best of those that
  /// ended in time is returned: with more time there are more of them, so nothing that a shorter time found is lost.
  Offer build(std::int64_t target, std::int64_t bound, std::int64_t typical, const State& flat) {
    target_ = target;
    const NodeLimits limits = limits_within(target - (target - bound) / kShareOfRanks);
    if (*std::max_element(limits.counts.begin(), limits.counts.end()) > kMostPerNode) return {flat, typical};
    Offer best{flat, typical};
    const auto offer = [&](State state, std::int64_t worst) {
      const bool less =
          worst < best.worst || (best.worst < typical && worst == best.worst && state.peak(in_) < best.state.peak(in_));
      if (less) best = {std::move(state), worst};
    };
    const std::int64_t starts = std::max<std::int64_t>(1, kStarts / options_.nodes);
    for (const std::int64_t part : solve_.deadline ? std::span<const std::int64_t>(kByClock) : kBySteps) {
      bool filled = false;
      for (std::int64_t i = 0; i < starts; ++i) {
        if (!time_left()) return best;
        Budget budget(moves() / starts / part, solve_.deadline);
        const std::uint64_t seed = solve_.seed + kSeedStride * static_cast<std::uint64_t>(i);
        NodeTraffic traffic(needs_, options_.nodes, search_nodes(in_, needs_, limits, typical, seed, budget));
        if (budget.cut_short()) return best;  // what a hot search holds is no plan yet
        for (std::int64_t n = 0; n < options_.nodes; ++n) solve_node(n, traffic, kNodeSteps);
        State found(in_, rank_of_);
        const std::int64_t untraded = traffic.worst();
        trade(traffic, found);
        if (found.peak(in_) > target) continue;
        filled = true;
        if (traffic.worst() > untraded + untraded / kDear) {
          Budget polish(moves() / 4 / starts / part, solve_.deadline);
          State cheaper = walk(found, 0, polish);
          const std::int64_t worst = worst_inbound(cheaper);
          offer(std::move(cheaper), worst);
        } else {
          offer(std::move(found), traffic.worst());
        }
        if (best.worst == 0) return best;
      }
      if (best.worst < typical - typical / kLittle) continue;
      if (!time_left()) return best;
      // Nodes that can be filled and have hardly less traffic leave little to find: mostly one long document.
      Budget budget((filled ? moves() / 2 : moves() * 3 / 2) / part, solve_.deadline);
      State walked = walk(flat, kHotWalk, budget);
      const std::int64_t worst = worst_inbound(walked);
      offer(std::move(walked), worst);
    }
    return best;
  }

 private:
  [[nodiscard]] std::int64_t node_of_rank(std::int64_t r) const {
    return options_.node_of.empty() ? r * options_.nodes / in_.ranks() : options_.node_of[static_cast<std::size_t>(r)];
  }
  /// How long a search counts the traffic of all nodes. A few are counted to know; what is no interval costs that for
  /// every few more.
  [[nodiscard]] std::chrono::nanoseconds time_to_count() const {
    const std::chrono::nanoseconds before = solve_.deadline->left();
    const std::int64_t few = std::min(options_.nodes, kFewNodes);
    std::vector<std::int32_t> in_turn(in_.loads.size());
    for (std::size_t c = 0; c < in_turn.size(); ++c) {
      in_turn[c] = static_cast<std::int32_t>(static_cast<std::int64_t>(c) % few);
    }
    const bool only_intervals = NodeTraffic(needs_, few, in_turn).only_intervals();
    return (only_intervals ? 1 : options_.nodes / few) * (before - solve_.deadline->left());
  }
  /// From a state within the target to one with less traffic.
  [[nodiscard]] State walk(const State& start, std::int64_t heat, Budget& budget) const {
    std::vector<std::int32_t> node_of;
    for (std::int64_t r = 0; r < in_.ranks(); ++r) node_of.push_back(static_cast<std::int32_t>(node_of_rank(r)));
    return walk_nodes(in_, needs_, options_.nodes, node_of, start, target_, heat, solve_.seed, budget);
  }
  /// What the nodes hold when their ranks are to stay within `aim` on average.
  [[nodiscard]] NodeLimits limits_within(std::int64_t aim) const {
    NodeLimits limits;
    limits.largest = target_;
    for (const auto& ranks : ranks_of_) {
      std::int64_t chunks = 0;
      Int128 capacity = 0;
      for (const std::int64_t r : ranks) {
        chunks += in_.counts[static_cast<std::size_t>(r)];
        capacity += in_.capacity(r, aim);
      }
      limits.counts.push_back(chunks);
      limits.capacities.push_back(static_cast<std::int64_t>(std::min(capacity, Int128{in_.total})));
      limits.ranks.push_back(static_cast<std::int64_t>(ranks.size()));
    }
    return limits;
  }
  [[nodiscard]] std::int64_t moves() const { return options_.steps > 0 ? options_.steps : 40'000 + 142 * in_.chunks(); }

  /// Stage 3: IPO among the ranks of one node over the chunks it was given, until all are within the target.
  void solve_node(std::int64_t n, const NodeTraffic& traffic, std::int64_t steps) {
    const std::vector<std::int64_t>& ranks = ranks_of_[static_cast<std::size_t>(n)];
    std::vector<std::int32_t> chunks, counts;
    std::vector<std::int64_t> loads, speeds;
    for (std::size_t c = 0; c < in_.loads.size(); ++c) {
      if (traffic.nodes()[c] != n) continue;
      chunks.push_back(static_cast<std::int32_t>(c));
      loads.push_back(in_.loads[c]);
    }
    if (chunks.empty()) return;
    for (const std::int64_t r : ranks) {
      counts.push_back(in_.counts[static_cast<std::size_t>(r)]);
      if (!in_.speeds.empty()) speeds.push_back(in_.speeds[static_cast<std::size_t>(r)]);
    }
    const Instance part = make_instance(std::move(loads), std::move(counts), std::move(speeds));
    const std::int64_t target = part.normalised(
        in_.speeds.empty() ? target_ : static_cast<std::int64_t>(Int128{target_} * part.fastest / in_.fastest));
    State state = lpt(part);
    if (state.peak(part) > target && part.speeds.empty()) {
      State other = bldm(part);
      if (other.peak(part) < state.peak(part)) state = std::move(other);
    }
    if (state.peak(part) > target) state = descend(part, std::move(state), target, steps);
    const std::vector<std::int32_t> inside = state.rank_of();
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      rank_of_[static_cast<std::size_t>(chunks[i])] =
          static_cast<std::int32_t>(ranks[static_cast<std::size_t>(inside[i])]);
    }
  }

  /// The best that pair exchanges reach.
  State descend(const Instance& in, State start, std::int64_t target, std::int64_t steps) const {
    Budget budget(steps, solve_.deadline);
    const auto run = [&](auto search) {
      search.descend(target, budget);
      return search.best();
    };
    if (in.total < (std::int64_t{1} << 46)) return run(PairSearch<std::uint64_t>(in, std::move(start), solve_.seed));
    return run(PairSearch<WideKey>(in, std::move(start), solve_.seed));
  }

  /// Ranks above the target, furthest first.
  [[nodiscard]] std::vector<std::int64_t> hot_ranks(const State& state) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> hot;  // (-excess, rank)
    for (std::int64_t r = 0; r < in_.ranks(); ++r) {
      const std::int64_t over = state.loads[static_cast<std::size_t>(r)] - in_.capacity(r, target_);
      if (over > 0) hot.emplace_back(-over, r);
    }
    std::sort(hot.begin(), hot.end());
    std::vector<std::int64_t> ranks;
    for (const auto& [over, r] : hot) ranks.push_back(r);
    return ranks;
  }

  /// Load above the target on all ranks of node n.
  [[nodiscard]] std::int64_t excess(const State& state, std::int64_t n) const {
    std::int64_t sum = 0;
    for (const std::int64_t r : ranks_of_[static_cast<std::size_t>(n)]) {
      sum += std::max<std::int64_t>(0, state.loads[static_cast<std::size_t>(r)] - in_.capacity(r, target_));
    }
    return sum;
  }

  /// While some rank exceeds the target it trades chunks with other nodes, and its node is solved again. Every round
  /// lowers the load above the target.
  void trade(NodeTraffic& traffic, State& state) {
    Budget budget(std::max(kTradeSteps, kTradeStepsOfRank * in_.ranks()), solve_.deadline);
    TradeMemo memo(in_.ranks());
    while (!budget.over()) {
      const std::vector<std::int64_t> hot = hot_ranks(state);
      if (hot.empty()) return;
      Trade found;
      for (const int count : {1, 2}) {
        for (std::size_t i = 0; i < hot.size() && found.count == 0; ++i) {
          found = best_trade(in_, state, hot[i], target_, count, memo, traffic, budget);
        }
      }
      if (found.count == 0) break;
      const std::int32_t a = traffic.node_of(found.mine[0]);
      apply(found, traffic);
      for (const std::int32_t chunk : {found.mine[0], found.theirs[0]}) {
        memo.change(rank_of_[static_cast<std::size_t>(chunk)]);
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>(found.count); ++i) {
        std::swap(rank_of_[static_cast<std::size_t>(found.mine[i])],
                  rank_of_[static_cast<std::size_t>(found.theirs[i])]);
      }
      state = State(in_, rank_of_);
      if (excess(state, a) == 0) continue;
      solve_node(a, traffic, kTradedNodeSteps);
      State solved(in_, rank_of_);
      if (excess(solved, a) < excess(state, a)) {
        state = std::move(solved);
        for (const std::int64_t r : ranks_of_[static_cast<std::size_t>(a)]) memo.change(r);
      } else {
        rank_of_ = state.rank_of();
      }
      budget.take(kTradedNodeSteps);
    }
  }

  const Instance& in_;
  std::span<const NeedSets> needs_;
  const HierarchyOptions& options_;
  const SolveOptions& solve_;
  std::vector<std::vector<std::int64_t>> ranks_of_;  // by node, ascending
  std::vector<std::int32_t> rank_of_;
  std::int64_t target_ = 0;
  std::chrono::nanoseconds counting_{0};  // under a deadline
};

}  // namespace

bool improve_traffic(const Instance& in, std::span<const NeedSets> needs, const HierarchyOptions& options,
                     const SolveOptions& solve, Solution& flat) {
  Hierarchy hierarchy(in, needs, options, solve);
  if (!hierarchy.time_left()) return false;
  const std::int64_t before = hierarchy.worst_inbound(flat.state);
  if (before == 0) return false;
  const std::int64_t target =
      std::max(relaxed_target(in, flat.bound.value, options.epsilon_millionths), flat.state.peak(in));
  Offer found = hierarchy.build(target, flat.bound.value, before, flat.state);
  if (found.worst >= before) return false;
  flat.state = std::move(found.state);
  flat.method = PlanMethod::hierarchy;
  return true;
}

Solution solve_on_nodes(const Instance& in, std::span<const NeedSets> needs, const HierarchyOptions& options,
                        const SolveOptions& solve) {
  SolveOptions first = solve;
  if (first.deadline) first.deadline = first.deadline->halfway();
  Solution best = balancing::solve(in, first);
  improve_traffic(in, needs, options, solve, best);
  return best;
}

}  // namespace flashmask::balancing
