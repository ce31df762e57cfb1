#include "balance/node_walk.hpp"

#include <algorithm>
#include <utility>

namespace flashmask::balancing {
namespace {

constexpr std::int64_t kReach = 64;                // partners are that near in the order of loads: others seldom fit
constexpr int kPartners = 12;                      // looked at for one swap
constexpr int kAttempts = 16;                      // between two looks at the schedule
constexpr std::int64_t kLargestTraffic = 1 << 14;  // its square and the thresholds stay far from 64 bits

class NodeWalk {
 public:
  NodeWalk(const Instance& in, std::span<const NeedSets> needs, std::int64_t nodes,
           std::span<const std::int32_t> node_of_rank, const State& start, std::int64_t target, std::int64_t heat,
           std::uint64_t seed)
      : in_(in),
        traffic_(needs, nodes, nodes_of(start, node_of_rank)),
        state_(start),
        rank_of_(start.rank_of()),
        slot_(rank_of_.size()),
        place_(rank_of_.size()),
        random_(seed),
        heat_(heat),
        best_(start),
        least_(traffic_.worst()) {
    for (std::size_t s = 0; s < state_.slots.size(); ++s)
      slot_[static_cast<std::size_t>(state_.slots[s])] = static_cast<std::int32_t>(s);
    for (std::size_t p = 0; p < in.by_load.size(); ++p)
      place_[static_cast<std::size_t>(in.by_load[p])] = static_cast<std::int32_t>(p);
    for (std::int64_t r = 0; r < in.ranks(); ++r) room_.push_back(in.capacity(r, target) - state_.loads[rank(r)]);
    while (least_ >> shift_ > kLargestTraffic) ++shift_;
    scale_ = std::max<std::int64_t>(4, (least_ >> shift_) / 4);
  }

  State run(Budget& budget) {
    const std::int64_t total = budget.left();
    const std::int64_t work =
        traffic_.only_intervals() ? 1 : 3;  // counted masks pay for the swap and for taking it back
    while (budget.left() > 0) {
      const std::int64_t left = (budget.left() << 10) / total;
      threshold_ = heat_ * scale_ * left / 1024 * left / 1024;
      for (int i = 0; i < kAttempts; ++i) attempt();
      if (!budget.take(kAttempts * work)) break;
    }
    keep();
    return std::move(best_);
  }

 private:
  static std::size_t rank(std::int64_t r) { return static_cast<std::size_t>(r); }
  static std::vector<std::int32_t> nodes_of(const State& state, std::span<const std::int32_t> node_of_rank) {
    std::vector<std::int32_t> nodes = state.rank_of();
    for (std::int32_t& r : nodes) r = node_of_rank[static_cast<std::size_t>(r)];
    return nodes;
  }
  [[nodiscard]] std::int64_t load(std::int32_t chunk) const { return in_.loads[static_cast<std::size_t>(chunk)]; }
  [[nodiscard]] std::size_t rank_of(std::int32_t chunk) const {
    return static_cast<std::size_t>(rank_of_[static_cast<std::size_t>(chunk)]);
  }

  /// Whether both ranks stay within the target when x and y change places.
  [[nodiscard]] bool fits(std::int32_t x, std::int32_t y) const {
    const std::int64_t gain = load(y) - load(x);
    return gain <= room_[rank_of(x)] && -gain <= room_[rank_of(y)];
  }

  /// Where chunk x should go: to the node of a neighbour, anywhere (-1), or to another rank of its own node.
  std::int32_t wanted(std::int32_t x, std::uint64_t draw) const {
    switch (draw % 4) {
      case 0:
        return x > 0 ? traffic_.node_of(x - 1) : -1;
      case 1:
        return x + 1 < in_.chunks() ? traffic_.node_of(x + 1) : -1;
      case 2:
        return traffic_.node_of(x);
      default:
        return -1;
    }
  }

  /// A chunk of about the load of x on `node` (-1: on any but its own) whose rank fits; -1: none was found.
  std::int32_t partner(std::int32_t x, std::int32_t node) {
    const std::int32_t own = traffic_.node_of(x);
    for (int i = 0; i < kPartners; ++i) {
      const std::int64_t p = place_[static_cast<std::size_t>(x)] - kReach + random_.below(2 * kReach + 1);
      if (p < 0 || p >= in_.chunks()) continue;
      const std::int32_t y = in_.by_load[static_cast<std::size_t>(p)];
      const std::int32_t there = traffic_.node_of(y);
      if (node < 0 ? there == own : there != node) continue;
      if (rank_of(y) != rank_of(x) && fits(x, y)) return y;
    }
    return -1;
  }

  void attempt() {
    const std::uint64_t draw = random_.next();
    const auto x = static_cast<std::int32_t>(((draw >> 32) * static_cast<std::uint64_t>(in_.chunks())) >> 32);
    const std::int32_t y = partner(x, wanted(x, draw));
    if (y < 0) return;
    const std::int32_t a = traffic_.node_of(x), b = traffic_.node_of(y);
    if (a == b) return swap(x, y);
    const std::int64_t before = cost(a, b);
    traffic_.propose(x, y, 1);
    const std::int64_t allowed = threshold_ > 0 ? random_.below(static_cast<std::uint64_t>(threshold_) + 1) : 0;
    if (cost(a, b) - before > allowed) return traffic_.undo();
    traffic_.keep();
    swap(x, y);
    if (++accepted_ % 16 == 0 || threshold_ == 0) keep();
  }

  [[nodiscard]] std::int64_t cost(std::int64_t a, std::int64_t b) const {
    const std::int64_t in_a = traffic_.inbound(a) >> shift_, in_b = traffic_.inbound(b) >> shift_;
    return in_a * in_a + in_b * in_b;
  }

  void swap(std::int32_t x, std::int32_t y) {
    const std::int64_t gain = load(y) - load(x);
    for (const auto& [chunk, more] : {std::pair{x, gain}, std::pair{y, -gain}}) {
      room_[rank_of(chunk)] -= more;
      state_.loads[rank_of(chunk)] += more;
    }
    std::swap(rank_of_[static_cast<std::size_t>(x)], rank_of_[static_cast<std::size_t>(y)]);
    std::swap(slot_[static_cast<std::size_t>(x)], slot_[static_cast<std::size_t>(y)]);
    for (const std::int32_t chunk : {x, y})
      state_.slots[static_cast<std::size_t>(slot_[static_cast<std::size_t>(chunk)])] = chunk;
  }

  void keep() {
    if (traffic_.worst() >= least_) return;
    least_ = traffic_.worst();
    best_ = state_;
  }

  const Instance& in_;
  NodeTraffic traffic_;
  State state_;
  std::vector<std::int32_t> rank_of_, slot_, place_;  // of a chunk; its place in the order of loads
  std::vector<std::int64_t> room_;                    // of a rank: load below the target
  Random random_;
  std::int64_t heat_;
  State best_;
  std::int64_t least_ = 0, scale_ = 1, threshold_ = 0, accepted_ = 0;
  int shift_ = 0;  // traffic is counted in units of 2^shift
};

}  // namespace

State walk_nodes(const Instance& in, std::span<const NeedSets> needs, std::int64_t nodes,
                 std::span<const std::int32_t> node_of_rank, const State& start, std::int64_t target, std::int64_t heat,
                 std::uint64_t seed, Budget& budget) {
  return NodeWalk(in, needs, nodes, node_of_rank, start, target, heat, seed).run(budget);
}

}  // namespace flashmask::balancing
