#include "balance/exact.hpp"

#include <bit>
#include <limits>

namespace flashmask::balancing {
namespace {

constexpr std::size_t kMostGroups = 1 << 13;  // conflicts are a square bit matrix of this side: 8 MiB at most
constexpr int kMostSize = 5;

/// Chunks (bits over positions in by_load) that one rank could hold, and how far below the target they stay.
struct Group {
  std::uint64_t chunks = 0;
  std::int64_t slack = 0;
};

class Cover {
 public:
  Cover(const Instance& in, std::int64_t target, Budget& budget) : in_(in), target_(target), budget_(budget) {
    for (const std::int32_t c : in.by_load) w_.push_back(in.loads[static_cast<std::size_t>(c)]);
    large_ = in.counts.front();
    small_ = in.counts.back();
    const Int128 slack = Int128{in.ranks()} * target - in.total;
    slack_ = static_cast<std::int64_t>(std::min<Int128>(slack, std::numeric_limits<std::int64_t>::max()));
  }

  Verdict run(State& found) {
    if (slack_ < 0) return Verdict::infeasible;
    if (!enumerate(small_) || (large_ != small_ && !enumerate(large_))) return Verdict::unknown;
    index();
    const std::int64_t large_ranks = large_ == small_ ? 0 : in_.chunks() - small_ * in_.ranks();
    const std::uint64_t all = w_.size() == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << w_.size()) - 1;
    alive_.emplace_back(words_, ~std::uint64_t{0});
    if (groups_.size() % 64 != 0 && words_ > 0) {
      alive_[0].back() = (std::uint64_t{1} << (groups_.size() % 64)) - 1;
    }
    const Verdict verdict = search(0, all, slack_, large_ranks);
    if (verdict == Verdict::feasible) found = assignment();
    return verdict;
  }

 private:
  /// All groups of `size` in the window; false when there are too many or the budget ended.
  bool enumerate(int size) {
    suffix_.assign(w_.size() + 1, 0);
    for (std::size_t i = w_.size(); i-- > 0;) suffix_[i] = suffix_[i + 1] + w_[i];
    return extend(0, size, 0, 0);
  }

  bool extend(std::size_t from, int left, std::uint64_t chunks, std::int64_t sum) {
    const std::size_t n = w_.size();
    if (left == 0) {
      if (sum > target_ || sum < target_ - slack_) return true;
      if (groups_.size() == kMostGroups) return false;
      groups_.push_back({chunks, target_ - sum});
      return true;
    }
    if (!budget_.take(from == 0 ? 1 : 0)) return false;
    const std::size_t more = static_cast<std::size_t>(left);
    for (std::size_t i = from; i + more <= n; ++i) {
      if ((++ticks_ & 63) == 0 && !budget_.take()) return false;
      // Loads descend: the largest completion follows i, the smallest stands at the end.
      const std::int64_t largest = sum + suffix_[i] - suffix_[i + more];
      if (largest < target_ - slack_) break;
      const std::int64_t smallest = sum + w_[i] + suffix_[n - (more - 1)];
      if (smallest > target_) continue;
      if (!extend(i + 1, left - 1, chunks | (std::uint64_t{1} << i), sum + w_[i])) return false;
    }
    return true;
  }

  /// Groups by slack, the groups of every chunk, and which groups exclude each other.
  void index() {
    std::sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) {
      return a.slack != b.slack ? a.slack < b.slack : a.chunks < b.chunks;
    });
    words_ = (groups_.size() + 63) / 64;
    of_chunk_.assign(w_.size(), std::vector<std::uint64_t>(words_, 0));
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (std::uint64_t c = groups_[g].chunks; c != 0; c &= c - 1) {
        of_chunk_[static_cast<std::size_t>(std::countr_zero(c))][g / 64] |= std::uint64_t{1} << (g % 64);
      }
    }
    seen_.assign(std::size_t{1} << 14, 0);
  }

  /// The open chunk with the fewest groups left; false when the slack cannot last or some chunk has none.
  bool choose(const std::vector<std::uint64_t>& alive, std::uint64_t open, std::int64_t slack, std::size_t& chosen) {
    std::int64_t fewest = std::int64_t{1} << 62;
    Int128 needed = 0;  // every open chunk costs at least its cheapest group's slack, shared by its chunks
    for (std::uint64_t c = open; c != 0; c &= c - 1) {
      const std::size_t chunk = static_cast<std::size_t>(std::countr_zero(c));
      std::int64_t count = 0, first = -1;
      for (std::size_t w = 0; w < words_; ++w) {
        const std::uint64_t both = alive[w] & of_chunk_[chunk][w];
        if (both == 0) continue;
        if (first < 0) first = static_cast<std::int64_t>(64 * w) + std::countr_zero(both);
        count += std::popcount(both);
      }
      if (count == 0) return false;
      needed += groups_[static_cast<std::size_t>(first)].slack;
      if (count < fewest) fewest = count, chosen = chunk;
    }
    return needed <= Int128{slack} * large_;
  }

  Verdict search(std::size_t depth, std::uint64_t open, std::int64_t slack, std::int64_t large_left) {
    if (open == 0) return Verdict::feasible;
    if (!budget_.take(1 + static_cast<std::int64_t>(words_ / 32))) return Verdict::unknown;
    // What is left over follows from the open chunks and the number of larger ranks: a state that failed fails again.
    const std::uint64_t key = mix(open + static_cast<std::uint64_t>(large_left) * 0x9e3779b97f4a7c15ULL);
    std::uint64_t& slot = seen_[key & (seen_.size() - 1)];
    if (large_ == small_ && slot == open) return Verdict::infeasible;
    std::size_t chunk = 0;
    if (!choose(alive_[depth], open, slack, chunk)) return Verdict::infeasible;
    if (alive_.size() == depth + 1) alive_.emplace_back(words_, 0);
    for (std::size_t w = 0; w < words_; ++w) {
      for (std::uint64_t bits = alive_[depth][w] & of_chunk_[chunk][w]; bits != 0; bits &= bits - 1) {
        const Group& group = groups_[64 * w + static_cast<std::size_t>(std::countr_zero(bits))];
        const bool is_large = large_ != small_ && std::popcount(group.chunks) == large_;
        if (group.slack > slack || (is_large && large_left == 0)) continue;
        restrict_to(alive_[depth], alive_[depth + 1], group, slack - group.slack);
        chosen_.push_back(group.chunks);
        const Verdict verdict = search(depth + 1, open & ~group.chunks, slack - group.slack, large_left - is_large);
        if (verdict != Verdict::infeasible) return verdict;
        chosen_.pop_back();
      }
    }
    slot = open;
    return Verdict::infeasible;
  }

  /// Groups of `from` that share no chunk with `group` and need at most `slack`.
  void restrict_to(const std::vector<std::uint64_t>& from, std::vector<std::uint64_t>& to, const Group& group,
                   std::int64_t slack) const {
    to = from;
    for (std::uint64_t c = group.chunks; c != 0; c &= c - 1) {
      const auto& taken = of_chunk_[static_cast<std::size_t>(std::countr_zero(c))];
      for (std::size_t w = 0; w < words_; ++w) to[w] &= ~taken[w];
    }
    const auto end =
        std::partition_point(groups_.begin(), groups_.end(), [&](const Group& g) { return g.slack <= slack; });
    const std::size_t kept = static_cast<std::size_t>(end - groups_.begin());
    if (kept == groups_.size()) return;
    to[kept / 64] &= (std::uint64_t{1} << (kept % 64)) - 1;
    std::fill(to.begin() + static_cast<std::ptrdiff_t>(kept / 64) + 1, to.end(), 0);
  }

  /// Larger groups first: those are the ranks with one chunk more.
  [[nodiscard]] State assignment() {
    std::stable_sort(chosen_.begin(), chosen_.end(),
                     [](std::uint64_t a, std::uint64_t b) { return std::popcount(a) > std::popcount(b); });
    std::vector<std::int32_t> rank_of(w_.size(), 0);
    for (std::size_t r = 0; r < chosen_.size(); ++r) {
      for (std::uint64_t c = chosen_[r]; c != 0; c &= c - 1) {
        const std::int32_t chunk = in_.by_load[static_cast<std::size_t>(std::countr_zero(c))];
        rank_of[static_cast<std::size_t>(chunk)] = static_cast<std::int32_t>(r);
      }
    }
    return State(in_, rank_of);
  }

  const Instance& in_;
  std::int64_t target_;
  Budget& budget_;
  std::vector<std::int64_t> w_, suffix_;
  std::int64_t slack_ = 0;
  std::int32_t large_ = 0, small_ = 0;
  std::uint64_t ticks_ = 0;
  std::vector<Group> groups_;
  std::size_t words_ = 0;
  std::vector<std::vector<std::uint64_t>> of_chunk_;
  std::vector<std::vector<std::uint64_t>> alive_;  // by depth
  std::vector<std::uint64_t> seen_;                // open sets that failed, direct mapped
  std::vector<std::uint64_t> chosen_;
};

}  // namespace

bool exact_applies(const Instance& in) {
  return in.speeds.empty() && in.chunks() <= 64 && in.counts.front() <= kMostSize && in.counts.back() >= 1;
}

Verdict exact_cover(const Instance& in, std::int64_t target, Budget& budget, State& found) {
  return Cover(in, target, budget).run(found);
}

}  // namespace flashmask::balancing
