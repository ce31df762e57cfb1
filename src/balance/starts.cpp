#include "balance/starts.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace flashmask::balancing {
namespace {

struct Slot {
  std::int64_t time = 0;
  std::int32_t rank = 0;
  friend bool operator<(const Slot& a, const Slot& b) { return a.time != b.time ? a.time < b.time : a.rank < b.rank; }
};

/// Restores the heap below position 0 after its entry grew; smallest on top.
void sift_down(std::vector<Slot>& heap) {
  const std::size_t n = heap.size();
  const Slot moved = heap[0];
  std::size_t i = 0;
  for (std::size_t child = 1; child < n; child = 2 * i + 1) {
    if (child + 1 < n && heap[child + 1] < heap[child]) ++child;
    if (!(heap[child] < moved)) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = moved;
}

/// With speeds the earliest end depends on the chunk: look at every rank.
State lpt_with_speeds(const Instance& in) {
  State state(in);
  std::vector<std::int32_t> used(in.counts.size(), 0);
  for (const std::int32_t chunk : in.by_load) {
    const std::int64_t w = in.loads[static_cast<std::size_t>(chunk)];
    std::size_t best = 0;
    std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
    for (std::size_t r = 0; r < in.counts.size(); ++r) {
      if (used[r] == in.counts[r]) continue;
      const std::int64_t end = in.time(static_cast<std::int64_t>(r), state.loads[r] + w);
      if (end < earliest) earliest = end, best = r;
    }
    state.slots[static_cast<std::size_t>(state.offsets[best] + used[best]++)] = chunk;
    state.loads[best] += w;
  }
  return state;
}

/// Positions of by_load that are still to be dealt: the first one at or behind any, and a walk from the lightest up.
class Left {
 public:
  explicit Left(std::int32_t count)
      : next_(static_cast<std::size_t>(count) + 1), up_(next_.size()), down_(next_.size()) {
    std::iota(next_.begin(), next_.end(), 0);
    std::iota(up_.begin(), up_.end(), -1);
    std::iota(down_.begin(), down_.end(), 1);
    lightest_ = count - 1;
  }
  [[nodiscard]] std::int32_t lightest() const { return lightest_; }
  /// The next heavier one, -1 behind the heaviest.
  [[nodiscard]] std::int32_t heavier(std::int32_t i) const { return up_[static_cast<std::size_t>(i)]; }
  /// The next lighter one, or what was it when `i` was taken.
  [[nodiscard]] std::int32_t lighter(std::int32_t i) const { return down_[static_cast<std::size_t>(i)]; }
  /// The heaviest one at position `i` or behind it; the number of positions when there is none.
  std::int32_t from(std::int32_t i) {
    std::int32_t at = i;
    while (next(at) != at) at = next(at) = next(next(at));
    return at;
  }
  void take(std::int32_t i) {
    next(i) = i + 1;
    const std::int32_t up = up_[static_cast<std::size_t>(i)], down = down_[static_cast<std::size_t>(i)];
    if (up >= 0) down_[static_cast<std::size_t>(up)] = down;
    up_[static_cast<std::size_t>(down)] = up;
    if (i == lightest_) lightest_ = up;
  }

 private:
  std::int32_t& next(std::int32_t i) { return next_[static_cast<std::size_t>(i)]; }
  std::vector<std::int32_t> next_, up_, down_;
  std::int32_t lightest_ = -1;
};

}  // namespace

State fill(const Instance& in, std::int64_t target) {
  State state(in);
  std::vector<std::int64_t> sorted;
  sorted.reserve(in.loads.size());
  for (const std::int32_t c : in.by_load) sorted.push_back(in.loads[static_cast<std::size_t>(c)]);
  Left left(static_cast<std::int32_t>(sorted.size()));
  for (std::size_t r = 0; r < in.counts.size(); ++r) {
    std::int64_t& load = state.loads[r];
    // The lightest chunks that must stay for the slots to come, and the lightest that may be taken now.
    std::int64_t reserved = 0;
    std::int32_t last = left.lightest();
    for (std::int32_t k = 1; k < in.counts[r]; ++k, last = left.heavier(last)) {
      reserved += sorted[static_cast<std::size_t>(last)];
    }
    for (std::int32_t others = in.counts[r] - 1; others >= 0; --others) {
      std::int32_t chosen = left.from(0);
      if (others + 1 < in.counts[r]) {
        last = left.lighter(last);
        reserved -= sorted[static_cast<std::size_t>(last)];
        const std::int64_t room = target - load - reserved;
        const auto fits = std::lower_bound(sorted.begin(), sorted.end(), room, std::greater<>());
        chosen = std::min(last, left.from(static_cast<std::int32_t>(fits - sorted.begin())));
      }
      left.take(chosen);
      load += sorted[static_cast<std::size_t>(chosen)];
      state.slots[static_cast<std::size_t>(state.offsets[r] + others)] = in.by_load[static_cast<std::size_t>(chosen)];
    }
  }
  return state;
}

State lpt(const Instance& in) {
  if (!in.speeds.empty()) return lpt_with_speeds(in);
  State state(in);
  std::vector<Slot> heap;
  for (std::size_t r = 0; r < in.counts.size(); ++r) {
    if (in.counts[r] > 0) heap.push_back({0, static_cast<std::int32_t>(r)});
  }
  std::vector<std::int32_t> next(state.offsets.begin(), state.offsets.end() - 1);
  for (const std::int32_t chunk : in.by_load) {
    const std::size_t r = static_cast<std::size_t>(heap[0].rank);
    state.slots[static_cast<std::size_t>(next[r]++)] = chunk;
    state.loads[r] += in.loads[static_cast<std::size_t>(chunk)];
    if (next[r] == state.offsets[r + 1]) {
      heap[0] = heap.back();
      heap.pop_back();
      if (!heap.empty()) sift_down(heap);
    } else {
      heap[0].time = state.loads[r];
      sift_down(heap);
    }
  }
  return state;
}

State bldm(const Instance& in) {
  const std::size_t ranks = in.counts.size();
  const std::size_t layers = static_cast<std::size_t>(in.counts.front());  // the last layer may be short: empty slots
  struct Layer {
    std::vector<std::pair<std::int64_t, std::int32_t>> groups;  // (load, group), heaviest first
    std::int64_t spread = 0;
  };
  // Group g of layer l starts as one chunk (or none); merging chains groups: next[] links the chunks of a group.
  std::vector<std::int32_t> chain(layers * ranks, -1), tail(layers * ranks);
  std::iota(tail.begin(), tail.end(), 0);
  std::vector<Layer> open(layers);
  for (std::size_t l = 0; l < layers; ++l) {
    for (std::size_t i = 0; i < ranks; ++i) {
      const std::size_t id = l * ranks + i;
      const std::int64_t w = id < in.loads.size() ? in.loads[static_cast<std::size_t>(in.by_load[id])] : 0;
      open[l].groups.emplace_back(w, static_cast<std::int32_t>(id));
    }
    open[l].spread = open[l].groups.front().first - open[l].groups.back().first;
  }
  while (open.size() > 1) {
    std::partial_sort(open.begin(), open.begin() + 2, open.end(),
                      [](const Layer& a, const Layer& b) { return a.spread > b.spread; });
    Layer& a = open[0];
    Layer& b = open[1];
    for (std::size_t i = 0; i < ranks; ++i) {
      auto& [load, group] = a.groups[i];
      const auto& [other_load, other] = b.groups[ranks - 1 - i];
      load += other_load;
      chain[static_cast<std::size_t>(tail[static_cast<std::size_t>(group)])] = other;
      tail[static_cast<std::size_t>(group)] = tail[static_cast<std::size_t>(other)];
    }
    std::sort(a.groups.begin(), a.groups.end(), std::greater<>());
    a.spread = a.groups.front().first - a.groups.back().first;
    open.erase(open.begin() + 1);
  }
  // Groups that hold an empty slot go to the ranks with fewer chunks.
  State state(in);
  const std::size_t more = static_cast<std::size_t>(
      std::count(in.counts.begin(), in.counts.end(), in.counts.front()));  // ranks with `layers` chunks
  std::size_t full = 0, lacking = in.equal_counts() ? 0 : more;
  for (const auto& [load, group] : open.front().groups) {
    std::vector<std::int32_t> chunks;
    for (std::int32_t id = group; id >= 0; id = chain[static_cast<std::size_t>(id)]) {
      if (static_cast<std::size_t>(id) < in.loads.size()) chunks.push_back(in.by_load[static_cast<std::size_t>(id)]);
    }
    const std::size_t r = chunks.size() == layers ? full++ : lacking++;
    std::copy(chunks.begin(), chunks.end(), state.rank(static_cast<std::int64_t>(r)).begin());
    state.loads[r] = load;
  }
  return state;
}

}  // namespace flashmask::balancing
