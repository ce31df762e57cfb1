#include "balance/node_search.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "balance/state.hpp"

namespace flashmask::balancing {
namespace {

constexpr int kLongestRun = 12;
constexpr int kCandidates = 4;         // stretches looked at for one swap
constexpr std::size_t kLevels = 3;     // chunks above 1/2, 1/3 and 1/4 of a rank's capacity are counted
constexpr std::int64_t kCrowded = 32;  // overload of one chunk too many of a level

std::vector<std::int32_t> consecutive(const NodeLimits& limits) {
  std::vector<std::int32_t> node_of;
  for (std::size_t n = 0; n < limits.counts.size(); ++n) {
    node_of.insert(node_of.end(), static_cast<std::size_t>(limits.counts[n]), static_cast<std::int32_t>(n));
  }
  return node_of;
}

class NodeSearch {
 public:
  NodeSearch(const Instance& in, std::span<const NeedSets> needs, const NodeLimits& limits, std::int64_t typical,
             std::uint64_t seed)
      : in_(in),
        limits_(limits),
        traffic_(needs, static_cast<std::int64_t>(limits.counts.size()), consecutive(limits)),
        random_(seed),
        members_(limits.counts.size()),
        place_(in.loads.size()),
        loads_(limits.counts.size(), 0),
        level_(in.loads.size(), 0),
        heavy_(limits.counts.size(), {0, 0, 0}) {
    for (std::size_t c = 0; c < place_.size(); ++c) {
      auto& list = members_[node(c)];
      place_[c] = static_cast<std::int32_t>(list.size());
      list.push_back(static_cast<std::int32_t>(c));
      loads_[node(c)] += in.loads[c];
      while (level_[c] < kLevels && Int128{in.loads[c]} * static_cast<int>(level_[c] + 2) <= limits.largest)
        ++level_[c];
      count_heavy(node(c), c, 1);
    }
    for (const std::int64_t w : in.loads) prefix_.push_back(prefix_.back() + w);
    unit_ = std::max<std::int64_t>(1, in.total / std::max<std::int64_t>(1, in.chunks()) / 16);
    scale_ = std::max<std::int64_t>(4, typical / 4);
  }

  std::vector<std::int32_t> run(Budget& budget) {
    const std::int64_t total = budget.left();
    keep();
    while (budget.left() > 0) {
      // Thresholds fall with the square of what is left; the price of overload doubles eight times.
      const std::int64_t left = (budget.left() << 10) / total;
      threshold_ = scale_ * scale_ * left / 1024 * left / 1024;
      price_ = (8 * scale_) << ((1024 - left) / 128);
      const std::int64_t work = attempt();
      if (!budget.take(1 + work)) break;
    }
    return best_;
  }

 private:
  [[nodiscard]] std::size_t node(std::size_t chunk) const {
    return static_cast<std::size_t>(traffic_.node_of(static_cast<std::int32_t>(chunk)));
  }

  /// Load beyond the capacity, in sixteenths of an average chunk.
  [[nodiscard]] std::int64_t overload(std::size_t n, std::int64_t more = 0) const {
    return std::max<std::int64_t>(0, (loads_[n] + more - limits_.capacities[n] + unit_ - 1) / unit_);
  }
  /// Chunks too heavy to share a rank in twos, threes or fours, beyond those that the node's ranks can hold apart.
  [[nodiscard]] std::int64_t crowding(std::size_t n) const {
    std::int64_t sum = 0;
    for (std::size_t j = 0; j < kLevels; ++j) {
      sum += std::max<std::int64_t>(0, heavy_[n][j] - static_cast<std::int64_t>(j + 1) * limits_.ranks[n]);
    }
    return sum;
  }
  void count_heavy(std::size_t n, std::size_t chunk, std::int64_t step) {
    for (std::size_t j = level_[chunk]; j < kLevels; ++j) heavy_[n][j] += step;
  }
  /// Load of chunks [chunk, chunk + n).
  [[nodiscard]] std::int64_t sum(std::size_t chunk, int n) const {
    return prefix_[chunk + static_cast<std::size_t>(n)] - prefix_[chunk];
  }
  [[nodiscard]] std::int64_t cost(std::size_t n) const {
    const std::int64_t in = traffic_.inbound(static_cast<std::int64_t>(n));
    return in * in + price_ * (overload(n) + kCrowded * crowding(n));
  }

  /// Length of the stretch of `n`'s chunks that starts at `chunk`, at most `most`.
  [[nodiscard]] int stretch(std::size_t chunk, std::size_t n, int most) const {
    int length = 0;
    while (length < most && chunk + static_cast<std::size_t>(length) < place_.size() &&
           node(chunk + static_cast<std::size_t>(length)) == n) {
      ++length;
    }
    return length;
  }

  /// Two stretches of equal length on two nodes change places if the cost allows; returns the chunks moved.
  std::int64_t attempt() {
    const std::size_t chunks = place_.size();
    const std::size_t x = random_.below(chunks);
    const std::size_t a = node(x);
    const int wanted = 1 + static_cast<int>(random_.below(kLongestRun));
    const int longest = stretch(x, a, wanted);
    const std::size_t b = partner(x, longest, a);
    if (b == a) return 0;
    // Of a few stretches of b, the one whose load fits best: most others would only be refused.
    const std::int64_t before_over = overload(a) + overload(b);
    std::size_t y = 0;
    int length = 0;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int i = 0; i < kCandidates; ++i) {
      const std::size_t candidate = static_cast<std::size_t>(members_[b][random_.below(members_[b].size())]);
      const int n = stretch(candidate, b, longest);
      const std::int64_t gain = sum(x, n) - sum(candidate, n);
      const std::int64_t over = overload(a, -gain) + overload(b, gain);
      if (over < least) least = over, y = candidate, length = n;
    }
    if (price_ * (least - before_over) > 2 * threshold_) return 0;
    const std::int64_t before = cost(a) + cost(b);
    exchange(x, y, length);
    if (cost(a) + cost(b) > before + (threshold_ > 0 ? random_.below(static_cast<std::uint64_t>(threshold_) + 1) : 0)) {
      exchange(x, y, length);
      return 4 * length;
    }
    if (++accepted_ % 16 == 0 || threshold_ == 0) keep();
    return 2 * length;
  }

  /// A node for chunks [x, x + length): that of a neighbour half of the time, else any with chunks.
  std::size_t partner(std::size_t x, int length, std::size_t a) {
    const std::uint32_t choice = random_.below(4);
    if (choice == 0 && x > 0) return node(x - 1);
    const std::size_t behind = x + static_cast<std::size_t>(length);
    if (choice == 1 && behind < place_.size()) return node(behind);
    const std::size_t b = random_.below(members_.size());
    return members_[b].empty() ? a : b;
  }

  void exchange(std::size_t x, std::size_t y, int length) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i) swap_chunks(x + i, y + i);
  }

  void swap_chunks(std::size_t x, std::size_t y) {
    const std::size_t a = node(x), b = node(y);
    traffic_.move(static_cast<std::int32_t>(x), static_cast<std::int32_t>(b));
    traffic_.move(static_cast<std::int32_t>(y), static_cast<std::int32_t>(a));
    std::swap(place_[x], place_[y]);
    members_[b][static_cast<std::size_t>(place_[x])] = static_cast<std::int32_t>(x);
    members_[a][static_cast<std::size_t>(place_[y])] = static_cast<std::int32_t>(y);
    count_heavy(a, x, -1);
    count_heavy(a, y, 1);
    count_heavy(b, y, -1);
    count_heavy(b, x, 1);
    loads_[a] += in_.loads[y] - in_.loads[x];
    loads_[b] += in_.loads[x] - in_.loads[y];
  }

  /// Remembers the assignment if it has less overload than the best, or as much and less traffic.
  void keep() {
    std::int64_t over = 0, sum = 0;
    for (std::size_t n = 0; n < loads_.size(); ++n) {
      over += overload(n) + kCrowded * crowding(n);
      sum += traffic_.inbound(static_cast<std::int64_t>(n));
    }
    const std::int64_t value = traffic_.worst() * (std::int64_t{1} << 20) + std::min<std::int64_t>(sum, (1 << 20) - 1);
    if (!best_.empty() && (over > best_over_ || (over == best_over_ && value >= best_value_))) return;
    best_over_ = over;
    best_value_ = value;
    best_.assign(traffic_.nodes().begin(), traffic_.nodes().end());
  }

  const Instance& in_;
  const NodeLimits& limits_;
  NodeTraffic traffic_;
  Random random_;
  std::vector<std::vector<std::int32_t>> members_;  // chunks of every node
  std::vector<std::int32_t> place_;                 // of a chunk in its node's list
  std::vector<std::int64_t> loads_;
  std::vector<std::size_t> level_;  // of a chunk: the first j such that j + 2 of its weight exceed a rank
  std::vector<std::array<std::int64_t, kLevels>> heavy_;  // by node: chunks of level <= j
  std::vector<std::int64_t> prefix_{0};                   // of the chunk loads
  std::int64_t unit_ = 1, scale_ = 1, threshold_ = 0, price_ = 0, accepted_ = 0;
  std::vector<std::int32_t> best_;
  std::int64_t best_over_ = 0, best_value_ = 0;
};

}  // namespace

std::vector<std::int32_t> search_nodes(const Instance& in, std::span<const NeedSets> needs, const NodeLimits& limits,
                                       std::int64_t typical, std::uint64_t seed, Budget& budget) {
  return NodeSearch(in, needs, limits, typical, seed).run(budget);
}

}  // namespace flashmask::balancing
