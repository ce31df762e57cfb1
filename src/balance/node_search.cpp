#include "balance/node_search.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "balance/node_company.hpp"
#include "balance/state.hpp"

namespace flashmask::balancing {
namespace {

constexpr std::size_t kLongestRun = 12;
constexpr std::uint64_t kLow = 0xffffffff;
constexpr std::uint64_t kOther = 0x9e3779b97f4a7c15ULL;  // makes a second number of one draw
constexpr std::int32_t kLook = 64;                       // how far the end of a stretch is looked for
constexpr std::uint64_t kCuts = 4;                       // one in four cuts starts a stretch, one in four ends it
constexpr int kCandidates = 4;                           // stretches looked at for one swap
constexpr int kAttempts = 16;                            // between two looks at the schedule
constexpr std::int64_t kLargestTraffic = 1 << 14;        // its square and the prices stay far from 64 bits
constexpr std::size_t kLevels = 3;     // chunks above 1/2, 1/3 and 1/4 of a rank's capacity are counted
constexpr std::int64_t kCrowded = 32;  // overload of one chunk too many of a level
constexpr std::int64_t kLonely = 4;    // overload of a unit of load that light chunks are missing

/// 32 random bits to a number below `count` < 2^32.
std::size_t choose(std::uint64_t bits, std::size_t count) {
  return (bits * count) >> 32;
}

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
      : limits_(limits),
        traffic_(needs, static_cast<std::int64_t>(limits.counts.size()), consecutive(limits)),
        company_(in, limits.largest),
        random_(seed),
        members_(limits.counts.size()),
        place_(in.loads.size()),
        loads_(limits.counts.size(), 0),
        heavy_(limits.counts.size(), {0, 0, 0}),
        shares_(limits.counts.size(), {0, 0}) {
    for (std::size_t c = 0; c < place_.size(); ++c) {
      auto& list = members_[node(c)];
      place_[c] = static_cast<std::int32_t>(list.size());
      list.push_back(static_cast<std::int32_t>(c));
      loads_[node(c)] += in.loads[c];
      prefix_.push_back(prefix_.back() + in.loads[c]);
      Levels levels = heavy_prefix_.back();
      for (std::size_t j = 0; j < kLevels; ++j) {
        const bool heavy = Int128{in.loads[c]} * static_cast<int>(j + 2) > limits.largest;
        levels[j] += heavy;
        heavy_[node(c)][j] += heavy;
      }
      heavy_prefix_.push_back(levels);
      if (company_.applies()) shares_[node(c)] += company_.of(c, 1);
    }
    const auto unit = static_cast<std::uint64_t>(in.total / std::max<std::int64_t>(1, in.chunks()) / 16);
    unit_shift_ = unit < 2 ? 0 : static_cast<int>(std::bit_width(unit)) - 1;
    while (typical >> traffic_shift_ > kLargestTraffic) ++traffic_shift_;
    scale_ = std::max<std::int64_t>(4, (typical >> traffic_shift_) / 4);
  }

  std::vector<std::int32_t> run(Budget& budget) {
    const std::int64_t total = budget.left();
    keep();
    while (budget.left() > 0) {
      // Thresholds fall with the square of what is left; the price of overload doubles eight times.
      const std::int64_t left = (budget.left() << 10) / total;
      threshold_ = 16 * scale_ * left / 1024 * left / 1024;
      price_ = (8 * scale_) << ((1024 - left) / 128);
      std::int64_t work = 0;
      for (int i = 0; i < kAttempts; ++i) work += 1 + attempt();
      if (!budget.take(work)) break;
    }
    return best_;
  }

 private:
  using Levels = std::array<std::int32_t, kLevels>;
  struct Change {
    std::int64_t load = 0;  // what node a loses and b gains
    Levels heavy{};
    Company::Share share{0, 0};
  };

  [[nodiscard]] std::size_t node(std::size_t chunk) const {
    return static_cast<std::size_t>(traffic_.node_of(static_cast<std::int32_t>(chunk)));
  }

  /// Load beyond the capacity, in about sixteenths of an average chunk.
  [[nodiscard]] std::int64_t overload(std::size_t n) const { return units(loads_[n] - limits_.capacities[n]); }
  /// Rounded up; without a branch, as which way it went could not be foretold.
  [[nodiscard]] std::int64_t units(std::int64_t over) const {
    return (std::max<std::int64_t>(over, 0) + (std::int64_t{1} << unit_shift_) - 1) >> unit_shift_;
  }
  /// Chunks too heavy to share a rank in twos, threes or fours, beyond those that the node's ranks can hold apart.
  [[nodiscard]] std::int64_t crowding(std::size_t n, const Levels& more = {}, int sign = 1) const {
    std::int64_t sum = 0;
    for (std::size_t j = 0; j < kLevels; ++j) {
      sum += std::max<std::int64_t>(
          0, heavy_[n][j] + sign * more[j] - static_cast<std::int64_t>(j + 1) * limits_.ranks[n]);
    }
    return sum;
  }
  /// Light chunks that the heavy ones of a node want beside them, counted as overload.
  [[nodiscard]] std::int64_t loneliness(std::size_t n, const Company::Share& share) const {
    const std::int64_t missing = company_.applies() ? company_.missing(limits_.ranks[n], share) : 0;
    return missing == 0 ? 0 : kLonely * (1 + ((missing - 1) >> unit_shift_));
  }
  /// What node a loses when chunks [x, x + n) leave it for [y, y + n).
  [[nodiscard]] Change change(std::size_t x, std::size_t y, std::size_t n) const {
    Change c{prefix_[x + n] - prefix_[x] - prefix_[y + n] + prefix_[y]};
    if (company_.applies()) c.share = company_.of(x, n) - company_.of(y, n);
    for (std::size_t j = 0; j < kLevels; ++j) {
      c.heavy[j] = heavy_prefix_[x + n][j] - heavy_prefix_[x][j] - heavy_prefix_[y + n][j] + heavy_prefix_[y][j];
    }
    return c;
  }
  [[nodiscard]] std::int64_t inbound_cost(std::size_t a, std::size_t b) const {
    const std::int64_t ia = traffic_.inbound(static_cast<std::int64_t>(a)) >> traffic_shift_;
    const std::int64_t ib = traffic_.inbound(static_cast<std::int64_t>(b)) >> traffic_shift_;
    return ia * ia + ib * ib;
  }

  struct Cut {
    std::size_t begin, length;
  };
  /// Up to `most` consecutive chunks of one node around `chunk`: the first or the last of their stretch, or from
  /// `chunk`.
  [[nodiscard]] Cut cut(std::size_t chunk, std::size_t most, std::uint64_t where) const {
    const auto at = static_cast<std::int32_t>(chunk);
    const auto longest = static_cast<std::int32_t>(most);
    if (where % kCuts == 1) {
      const std::int32_t last = at + traffic_.ahead(at, kLook) - 1;
      const std::int32_t length = traffic_.behind(last, longest);
      return {static_cast<std::size_t>(last - length + 1), static_cast<std::size_t>(length)};
    }
    const std::int32_t first = where % kCuts == 0 ? at - traffic_.behind(at, kLook) + 1 : at;
    return {static_cast<std::size_t>(first), static_cast<std::size_t>(traffic_.ahead(first, longest))};
  }

  /// Two stretches of equal length on two nodes change places if the cost allows; returns the work beyond one step.
  std::int64_t attempt() {
    const std::uint64_t draw = random_.next();  // one draw, several choices: draws are what an attempt costs most
    const std::size_t some = hotter(choose(draw >> 32, place_.size()), choose((draw * kOther) >> 32, place_.size()));
    const std::size_t a = node(some);
    const auto [x, longest] = cut(some, 1 + choose(draw & kLow, kLongestRun), draw >> 16);
    const std::size_t b = partner(x, longest, a);
    if (b == a) return 0;
    // Of a few stretches of b, the one whose load fits best: most others would only be refused.
    const std::int64_t before_over = overload(a) + overload(b);
    const std::int64_t over_a = loads_[a] - limits_.capacities[a], over_b = loads_[b] - limits_.capacities[b];
    const std::vector<std::int32_t>& members = members_[b];
    std::size_t y = 0, length = 0;
    const std::uint64_t where = random_.next();
    std::uint64_t other = where;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int i = 0; i < kCandidates; ++i) {
      const std::size_t member = choose(other >> 32, members.size());
      other *= kOther;
      const auto [candidate, n] = cut(static_cast<std::size_t>(members[member]), longest, where);
      const std::int64_t gain = prefix_[x + n] - prefix_[x] - prefix_[candidate + n] + prefix_[candidate];
      const std::int64_t over = units(over_a - gain) + units(over_b + gain);
      if (over < least) least = over, y = candidate, length = n;
    }
    const Change moved = change(x, y, length);
    const std::int64_t crowds = crowding(a, moved.heavy, -1) + crowding(b, moved.heavy) - crowding(a) - crowding(b);
    const std::int64_t lonely = loneliness(a, shares_[a] - moved.share) + loneliness(b, shares_[b] + moved.share) -
                                loneliness(a, shares_[a]) - loneliness(b, shares_[b]);
    const std::int64_t dearer = price_ * (least - before_over + kCrowded * crowds + lonely);
    if (dearer > 2 * threshold_) return 0;
    const std::int64_t before = inbound_cost(a, b);
    const auto from = static_cast<std::int32_t>(x), to = static_cast<std::int32_t>(y);
    traffic_.propose(from, to, static_cast<std::int32_t>(length));
    const std::int64_t allowed = threshold_ > 0 ? random_.below(static_cast<std::uint64_t>(threshold_) + 1) : 0;
    const std::int64_t work = traffic_.only_intervals() ? 0 : static_cast<std::int64_t>(length);
    if (inbound_cost(a, b) - before + dearer > allowed) {
      traffic_.undo();
      return 2 * work;
    }
    traffic_.keep();
    commit(a, b, x, y, length, moved);
    if (++accepted_ % 16 == 0 || threshold_ == 0) keep();
    return work;
  }

  /// Of two chunks the one whose node receives more: it is the worst node that counts.
  [[nodiscard]] std::size_t hotter(std::size_t x, std::size_t y) const {
    const auto inbound = [this](std::size_t c) { return traffic_.inbound(static_cast<std::int64_t>(node(c))); };
    return inbound(y) > inbound(x) ? y : x;
  }

  /// A node for chunks [x, x + length): that of a neighbour half of the time, else any with chunks.
  std::size_t partner(std::size_t x, std::size_t length, std::size_t a) {
    const std::uint64_t draw = random_.next();
    if (draw % 4 == 0 && x > 0) return node(x - 1);
    const std::size_t behind = x + length;
    if (draw % 4 == 1 && behind < place_.size()) return node(behind);
    const std::size_t b = choose(draw >> 32, members_.size());
    return members_[b].empty() ? a : b;
  }

  void commit(std::size_t a, std::size_t b, std::size_t x, std::size_t y, std::size_t length, const Change& moved) {
    for (std::size_t i = 0; i < length; ++i) {
      std::swap(place_[x + i], place_[y + i]);
      members_[b][static_cast<std::size_t>(place_[x + i])] = static_cast<std::int32_t>(x + i);
      members_[a][static_cast<std::size_t>(place_[y + i])] = static_cast<std::int32_t>(y + i);
    }
    for (std::size_t j = 0; j < kLevels; ++j) {
      heavy_[a][j] -= moved.heavy[j];
      heavy_[b][j] += moved.heavy[j];
    }
    shares_[a] -= moved.share;
    shares_[b] += moved.share;
    loads_[a] -= moved.load;
    loads_[b] += moved.load;
  }

  /// Remembers the assignment if it has less overload than the best, or as much and less traffic.
  void keep() {
    std::int64_t over = 0, sum = 0;
    for (std::size_t n = 0; n < loads_.size(); ++n) {
      over += overload(n) + kCrowded * crowding(n) + loneliness(n, shares_[n]);
      sum += traffic_.inbound(static_cast<std::int64_t>(n)) >> traffic_shift_;
    }
    const std::int64_t value =
        (traffic_.worst() >> traffic_shift_) * (std::int64_t{1} << 20) + std::min<std::int64_t>(sum, (1 << 20) - 1);
    if (!best_.empty() && (over > best_over_ || (over == best_over_ && value >= best_value_))) return;
    best_over_ = over;
    best_value_ = value;
    best_.assign(traffic_.nodes().begin(), traffic_.nodes().end());
  }

  const NodeLimits& limits_;
  NodeTraffic traffic_;
  Company company_;
  Random random_;
  std::vector<std::vector<std::int32_t>> members_;  // chunks of every node
  std::vector<std::int32_t> place_;                 // of a chunk in its node's list
  std::vector<std::int64_t> loads_;
  std::vector<Levels> heavy_;               // by node: chunks of which j + 2 exceed a rank
  std::vector<Company::Share> shares_;      // by node
  std::vector<std::int64_t> prefix_{0};     // of the chunk loads
  std::vector<Levels> heavy_prefix_{{}};    // of the heavy chunks
  int unit_shift_ = 0, traffic_shift_ = 0;  // overload and traffic are counted in units of 2^shift
  std::int64_t scale_ = 1, threshold_ = 0, price_ = 0, accepted_ = 0;
  std::vector<std::int32_t> best_;
  std::int64_t best_over_ = 0, best_value_ = 0;
};

}  // namespace

std::vector<std::int32_t> search_nodes(const Instance& in, std::span<const NeedSets> needs, const NodeLimits& limits,
                                       std::int64_t typical, std::uint64_t seed, Budget& budget) {
  return NodeSearch(in, needs, limits, typical, seed).run(budget);
}

}  // namespace flashmask::balancing
