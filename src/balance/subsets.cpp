#include "balance/subsets.hpp"

#include <bit>
#include <limits>
#include <utility>

namespace flashmask::balancing {
namespace {

/// Where the list of a cardinality starts: every list is led by one zero.
struct Layout {
  std::array<std::array<std::int32_t, kWindow + 2>, kWindow + 1> begin{};
};

constexpr Layout kLayout = [] {
  Layout layout;
  for (std::size_t n = 0; n <= kWindow; ++n) {
    std::int32_t at = 0;
    for (std::size_t j = 1; j <= n; ++j) {
      layout.begin[n][j] = at + 1;
      at += kChoose[n][j] + 1;
    }
    layout.begin[n][n + 1] = at + 1;
  }
  return layout;
}();

/// Largest cardinality for `n` chunks whose lists stay within kMostEntries.
int deepest_cardinality(int n, bool halved) {
  const int wanted = halved ? n / 2 : n;
  int entries = 0, j = 0;
  while (j < wanted &&
         entries + kChoose[static_cast<std::size_t>(n)][static_cast<std::size_t>(j + 1)] <= kMostEntries) {
    ++j;
    entries += kChoose[static_cast<std::size_t>(n)][static_cast<std::size_t>(j)];
  }
  return j;
}

}  // namespace

template <typename Key>
SubsetCache<Key>::SubsetCache(const Instance& instance, State& state, bool halved, Random& random)
    : in_(instance), state_(state), halved_(halved), random_(random), lists_(instance.counts.size()) {}

template <typename Key>
void SubsetCache<Key>::build(std::int64_t rank, Lists& out) {
  const auto chunks = state_.rank(rank);
  const int count = static_cast<int>(chunks.size());
  const int n = std::min(count, kWindow);
  const std::size_t row = static_cast<std::size_t>(n);
  if (!out.entries) {
    out.window = n;
    out.deepest = deepest_cardinality(n, halved_ && count <= kWindow);
    out.entries = std::make_unique<Key[]>(
        static_cast<std::size_t>(kLayout.begin[row][static_cast<std::size_t>(out.deepest) + 1] + 1));
  }
  if (count <= kWindow) {
    for (int i = 0; i < n; ++i) out.slots[static_cast<std::size_t>(i)] = i;
  } else {  // a fresh random window, one slot out of each of kWindow stretches
    for (int i = 0; i < n; ++i) {
      const int from = static_cast<int>(std::int64_t{count} * i / n);
      const int to = static_cast<int>(std::int64_t{count} * (i + 1) / n);
      out.slots[static_cast<std::size_t>(i)] =
          from + static_cast<int>(random_.below(static_cast<std::uint64_t>(to - from)));
    }
  }
  Key* const entries = out.entries.get();
  for (int i = 0; i < n; ++i) {
    const std::int32_t chunk = chunks[static_cast<std::size_t>(out.slots[static_cast<std::size_t>(i)])];
    const Key item = (static_cast<Key>(in_.loads[static_cast<std::size_t>(chunk)]) << 16) | (Key{1} << i);
    for (int j = std::min(i + 1, out.deepest); j >= 2; --j) {
      // Merge, from the back, subsets without chunk i and those with it; the leading zero ends the first list.
      Key* const list = entries + kLayout.begin[row][static_cast<std::size_t>(j)];
      const Key* const shorter = entries + kLayout.begin[row][static_cast<std::size_t>(j - 1)];
      std::int32_t x = kChoose[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] - 1;
      std::int32_t y = kChoose[static_cast<std::size_t>(i)][static_cast<std::size_t>(j - 1)] - 1;
      for (std::int32_t o = x + y + 1; y >= 0; --o) {
        const Key without = list[x];
        const Key with = shorter[y] + item;
        const bool keep = without > with;
        list[o] = keep ? without : with;
        x -= keep;
        y -= !keep;
      }
    }
    if (out.deepest >= 1) {
      Key* const single = entries + kLayout.begin[row][1];
      std::int32_t o = i;
      for (; o > 0 && single[o - 1] > item; --o) single[o] = single[o - 1];
      single[o] = item;
    }
  }
  out.fresh = true;
}

template <typename Key>
const typename SubsetCache<Key>::Lists& SubsetCache<Key>::lists(std::int64_t rank) {
  Lists& found = lists_[static_cast<std::size_t>(rank)];
  if (!found.fresh) build(rank, found);
  return found;
}

template <typename Key>
std::int64_t SubsetCache<Key>::best_exchange(std::int64_t a, std::int64_t b, std::int64_t low, std::int64_t high,
                                             int choices, Exchange& best) {
  const Lists& from = lists(a);
  const Lists& to = lists(b);
  std::int64_t nearest = std::numeric_limits<std::int64_t>::max();
  int hits = 0;
  const int deepest = std::min(from.deepest, to.deepest);
  for (int j = deepest; j >= 1; --j) {
    const std::size_t card = static_cast<std::size_t>(j);
    const std::size_t na = static_cast<std::size_t>(from.window), nb = static_cast<std::size_t>(to.window);
    const Key* x = from.entries.get() + kLayout.begin[na][card];
    const Key* y = to.entries.get() + kLayout.begin[nb][card];
    const Key* const x_end = x + kChoose[na][card];
    const Key* const y_end = y + kChoose[nb][card];
    // Both followers are loaded before it is known which one is next: the walk waits for no load. One entry follows
    // every list.
    Key mine = *x, theirs = *y;
    while (x != x_end && y != y_end) {
      const Key mine_next = x[1], theirs_next = y[1];
      const std::int64_t delta = static_cast<std::int64_t>(mine >> 16) - static_cast<std::int64_t>(theirs >> 16);
      const std::int64_t distance = std::max<std::int64_t>(0, std::max(low - delta, delta - high));
      if (distance < nearest || (distance == 0 && choices > 1)) {
        nearest = distance;
        hits += distance == 0;
        if (hits <= 1 || random_.below(static_cast<std::uint64_t>(hits)) == 0) {
          best = {static_cast<std::uint32_t>(mine & 0xffff), static_cast<std::uint32_t>(theirs & 0xffff), delta};
        }
        if (hits >= choices) return 0;
      }
      const bool too_much = delta > high;
      y += too_much;
      x += !too_much;
      mine = too_much ? mine : mine_next;
      theirs = too_much ? theirs_next : theirs;
    }
  }
  return nearest == std::numeric_limits<std::int64_t>::max() ? -1 : nearest;
}

template <typename Key>
void SubsetCache<Key>::apply(std::int64_t a, std::int64_t b, const Exchange& exchange) {
  const auto from = state_.rank(a);
  const auto to = state_.rank(b);
  const Lists& la = lists_[static_cast<std::size_t>(a)];
  const Lists& lb = lists_[static_cast<std::size_t>(b)];
  std::uint32_t left = exchange.mask_a, right = exchange.mask_b;
  while (left != 0) {
    const auto i = static_cast<std::size_t>(la.slots[static_cast<std::size_t>(std::countr_zero(left))]);
    const auto j = static_cast<std::size_t>(lb.slots[static_cast<std::size_t>(std::countr_zero(right))]);
    std::swap(from[i], to[j]);
    left &= left - 1;
    right &= right - 1;
  }
  state_.loads[static_cast<std::size_t>(a)] -= exchange.delta;
  state_.loads[static_cast<std::size_t>(b)] += exchange.delta;
  invalidate(a);
  invalidate(b);
}

template class SubsetCache<std::uint64_t>;
template class SubsetCache<WideKey>;

}  // namespace flashmask::balancing
