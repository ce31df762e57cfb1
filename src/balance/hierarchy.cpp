#include "balance/hierarchy.hpp"

#include <algorithm>
#include <utility>

#include "balance/node_search.hpp"
#include "balance/pairs.hpp"
#include "balance/repair.hpp"

namespace flashmask::balancing {
namespace {

constexpr std::int64_t kMostPerNode = 65'535;  // NodeTraffic counts in 16 bits

/// The largest normalised target within (1 + epsilon) times the bound in the units of the workload.
std::int64_t relaxed_target(const Instance& in, std::int64_t bound, std::int64_t epsilon_millionths) {
  const std::int64_t original = in.original(bound);
  const auto extra = static_cast<std::int64_t>(Int128{original} * epsilon_millionths / 1'000'000);
  return in.normalised(original + extra);
}

/// One attempt at a plan with less traffic than the flat one.
class Hierarchy {
 public:
  Hierarchy(const Instance& in, std::span<const NeedSets> needs, const HierarchyOptions& options,
            const SolveOptions& solve)
      : in_(in), needs_(needs), options_(options), solve_(solve), rank_of_(in.loads.size(), 0) {
    first_.assign(static_cast<std::size_t>(options.nodes) + 1, in.ranks());
    for (std::int64_t r = in.ranks(); r-- > 0;) first_[static_cast<std::size_t>(node_of_rank(r))] = r;
  }

  [[nodiscard]] std::int64_t worst_inbound(const State& state) const {
    std::vector<std::int32_t> node_of = state.rank_of();
    for (std::int32_t& r : node_of) r = static_cast<std::int32_t>(node_of_rank(r));
    return NodeTraffic(needs_, options_.nodes, node_of).worst();
  }

  /// A state within `target` that was built for little traffic; false when the nodes cannot hold it.
  bool build(std::int64_t target, std::int64_t bound, std::int64_t typical, State& state) {
    target_ = target;
    NodeLimits limits;
    limits.largest = target;
    for (std::size_t n = 0; n + 1 < first_.size(); ++n) {
      std::int64_t chunks = 0, capacity = 0;
      for (std::int64_t r = first_[n]; r < first_[n + 1]; ++r) {
        chunks += in_.counts[static_cast<std::size_t>(r)];
        capacity += in_.capacity(r, target - (target - bound) / 8);  // an eighth of the allowance is left to stage 3
      }
      if (chunks > kMostPerNode) return false;
      limits.counts.push_back(chunks);
      limits.capacities.push_back(capacity);
      limits.ranks.push_back(first_[n + 1] - first_[n]);
    }
    Budget budget(options_.steps > 0 ? options_.steps : default_moves(), solve_.deadline);
    NodeTraffic traffic(needs_, options_.nodes, search_nodes(in_, needs_, limits, typical, solve_.seed, budget));
    for (std::int64_t n = 0; n < options_.nodes; ++n) solve_node(n, traffic);
    state = State(in_, rank_of_);
    trade(limits, traffic, state);
    if (state.peak(in_) > target) repair(state);
    return state.peak(in_) <= target;
  }

 private:
  [[nodiscard]] std::int64_t node_of_rank(std::int64_t r) const { return r * options_.nodes / in_.ranks(); }
  [[nodiscard]] std::int64_t default_moves() const { return 35'000 + 340 * in_.chunks(); }

  /// Stage 3: IPO among the ranks of one node over the chunks it was given.
  void solve_node(std::int64_t n, const NodeTraffic& traffic) {
    const std::int64_t first = first_[static_cast<std::size_t>(n)], last = first_[static_cast<std::size_t>(n) + 1];
    std::vector<std::int32_t> chunks;
    std::vector<std::int64_t> loads, speeds;
    for (std::size_t c = 0; c < in_.loads.size(); ++c) {
      if (traffic.nodes()[c] != n) continue;
      chunks.push_back(static_cast<std::int32_t>(c));
      loads.push_back(in_.loads[c]);
    }
    if (chunks.empty()) return;
    if (!in_.speeds.empty()) speeds.assign(in_.speeds.begin() + first, in_.speeds.begin() + last);
    const Instance part =
        make_instance(std::move(loads), {in_.counts.begin() + first, in_.counts.begin() + last}, std::move(speeds));
    SolveOptions options = solve_;
    options.proof_steps = 0;
    const std::vector<std::int32_t> inside = solve(part, options).state.rank_of();
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      rank_of_[static_cast<std::size_t>(chunks[i])] = static_cast<std::int32_t>(first) + inside[i];
    }
  }

  /// While some rank exceeds the target: its node trades one chunk, and both nodes are solved again.
  void trade(const NodeLimits& limits, NodeTraffic& traffic, State& state) {
    Budget budget(64 * 256, solve_.deadline);
    std::vector<std::int64_t> room(static_cast<std::size_t>(options_.nodes));
    for (std::int64_t round = 0; round < 4 * options_.nodes + 8; ++round) {
      std::int64_t hot = 0, excess = 0;
      for (std::size_t n = 0; n < room.size(); ++n) room[n] = limits.capacities[n];
      for (std::int64_t r = 0; r < in_.ranks(); ++r) {
        const std::int64_t load = state.loads[static_cast<std::size_t>(r)];
        room[static_cast<std::size_t>(node_of_rank(r))] -= load;
        if (load - in_.capacity(r, target_) > excess) hot = r, excess = load - in_.capacity(r, target_);
      }
      if (excess == 0) return;
      const Trade found = best_trade(in_, state.rank(hot), {excess, room}, traffic, budget);
      if (found.mine < 0) return;
      const std::int32_t a = traffic.node_of(found.mine), b = traffic.node_of(found.theirs);
      traffic.move(found.mine, b);
      traffic.move(found.theirs, a);
      solve_node(a, traffic);
      solve_node(b, traffic);
      state = State(in_, rank_of_);
    }
  }

  /// Last resort: exchanges between any two ranks, blind to traffic.
  void repair(State& state) {
    const auto descend = [&](auto search) {
      Budget budget(default_steps(in_), solve_.deadline);
      search.descend(target_, budget);
      state = search.best();
    };
    if (in_.total < (std::int64_t{1} << 46)) {
      descend(PairSearch<std::uint64_t>(in_, state, solve_.seed));
    } else {
      descend(PairSearch<WideKey>(in_, state, solve_.seed));
    }
  }

  const Instance& in_;
  std::span<const NeedSets> needs_;
  const HierarchyOptions& options_;
  const SolveOptions& solve_;
  std::vector<std::int64_t> first_;  // ranks [first(n), first(n + 1)) live on node n
  std::vector<std::int32_t> rank_of_;
  std::int64_t target_ = 0;
};

}  // namespace

bool improve_traffic(const Instance& in, std::span<const NeedSets> needs, const HierarchyOptions& options,
                     const SolveOptions& solve, Solution& flat) {
  Hierarchy hierarchy(in, needs, options, solve);
  const std::int64_t before = hierarchy.worst_inbound(flat.state);
  if (before == 0) return false;
  const std::int64_t target =
      std::max(relaxed_target(in, flat.bound.value, options.epsilon_millionths), flat.state.peak(in));
  State state;
  if (!hierarchy.build(target, flat.bound.value, before, state) || hierarchy.worst_inbound(state) >= before) {
    return false;
  }
  flat.state = std::move(state);
  flat.method = PlanMethod::hierarchy;
  return true;
}

}  // namespace flashmask::balancing
