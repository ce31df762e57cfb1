// Random members of the mask families users have, and attention shapes, for tests of kernels. Plain vectors, so that it
// needs no room of the library; equal seeds give equal masks on every platform.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

#include "flashmask/mask.hpp"
#include "support/random_mask.hpp"

namespace flashmask::testing {

template <typename T>
T pick(Random& random, std::initializer_list<T> from) {
  return from.begin()[random.integer(0, static_cast<std::int64_t>(from.size()) - 1)];
}

/// Four raw vectors and the shape they speak about.
struct RawMask {
  MaskShape shape;
  std::vector<std::int32_t> lts, lte, uts, ute;

  explicit RawMask(const MaskShape& s) : shape(s) {
    const auto n = static_cast<std::size_t>(s.vector_size());
    lts.resize(n), lte.resize(n), uts.resize(n), ute.resize(n);
  }
  void set(std::int64_t i, const HiddenRows& c) { lts[i] = c.lts, lte[i] = c.lte, uts[i] = c.uts, ute[i] = c.ute; }
  [[nodiscard]] MaskView view() const { return {lts.data(), lte.data(), uts.data(), ute.data(), shape}; }
  /// Whether row i sees column j, straight from the definition on the raw vectors.
  [[nodiscard]] bool visible(std::int64_t batch, std::int64_t head, std::int64_t i, std::int64_t j) const {
    return !view().at(view().index(batch, head, j)).hides(static_cast<std::int32_t>(i));
  }
};

/// Families of masks a draw is taken from.
enum class MaskKind {
  full,
  causal,
  window,
  causal_documents,
  documents,
  shared_prefix,
  global_window,
  blockwise,
  eviction,
  sparse_blocks,
  any_values,
  two_runs,
  dead_columns,
  all_dead,
  count
};

namespace families {

/// Ascending cut points of [0, n) with both ends.
inline std::vector<std::int32_t> cuts(Random& random, std::int32_t n) {
  std::vector<std::int32_t> at{0, n};
  for (std::int64_t pieces = random.integer(0, 8); pieces > 0; --pieces) {
    at.push_back(static_cast<std::int32_t>(random.integer(0, n)));
  }
  std::sort(at.begin(), at.end());
  return at;
}

inline std::int32_t any_value(Random& random, std::int32_t rows) {
  if (random.one_in(20)) return std::numeric_limits<std::int32_t>::min();
  if (random.one_in(20)) return std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(random.integer(-rows / 4 - 2, rows + rows / 4 + 2));
}

/// Fills the columns of one (batch, head).
inline void fill(Random& random, MaskKind kind, RawMask& mask, std::int64_t base) {
  const auto rows = static_cast<std::int32_t>(mask.shape.rows);
  const auto columns = static_cast<std::int32_t>(mask.shape.columns);
  const auto clamp = [rows](std::int64_t x) { return static_cast<std::int32_t>(std::clamp<std::int64_t>(x, 0, rows)); };
  const std::int64_t delta = std::int64_t{columns} - rows;
  const std::vector<std::int32_t> at = cuts(random, columns);
  const std::int64_t reach = random.integer(0, columns / 2 + 1), pinned = random.integer(0, columns / 8 + 1);
  const std::int64_t a = random.integer(0, rows), b = random.integer(a, rows);
  std::size_t d = 0;
  for (std::int32_t j = 0; j < columns; ++j) {
    while (at[d + 1] <= j) ++d;
    const std::int32_t begin = clamp(at[d] - delta), end = clamp(at[d + 1] - delta), diagonal = clamp(j - delta);
    const std::int32_t from = any_value(random, rows), to = any_value(random, rows);
    HiddenRows c{rows, 0, rows, 0};
    switch (kind) {
      case MaskKind::causal:
        c = {rows, rows, 0, diagonal};
        break;
      case MaskKind::window:
        c = {clamp(j - delta + reach), rows, 0, diagonal};
        break;
      case MaskKind::causal_documents:
        c = {end, rows, 0, diagonal};
        break;
      case MaskKind::documents:
        c = {end, rows, 0, begin};
        break;
      case MaskKind::shared_prefix:
        c = {end, rows, 0, j - at[d] < pinned ? begin : diagonal};
        break;
      case MaskKind::global_window:
        if (j >= pinned) c = {clamp(j - delta + reach + 1), rows, clamp(pinned), clamp(j - delta - reach)};
        break;
      case MaskKind::blockwise:
        c = {end, clamp(a), 0, diagonal};
        break;
      case MaskKind::eviction:
        c = {clamp(random.integer(diagonal, rows)), rows, 0, diagonal};
        break;
      case MaskKind::sparse_blocks:
        c = {rows, 0, 0, diagonal};
        if (d % 2 == 0) c.lts = static_cast<std::int32_t>(a), c.lte = static_cast<std::int32_t>(b);
        break;
      case MaskKind::any_values:
        c = {from, to, any_value(random, rows), any_value(random, rows)};
        break;
      case MaskKind::two_runs:
        c = {clamp(b), clamp(b + reach), clamp(a), random.one_in(3) ? clamp(b) : clamp(a + 3)};
        break;
      case MaskKind::dead_columns:
        if (d % 2 == 1) c = {0, rows, 0, 0};
        break;
      case MaskKind::all_dead:
        c = {0, rows, 0, 0};
        break;
      default:
        break;
    }
    mask.set(base + j, c);
  }
}

}  // namespace families

/// Every (batch, head) draws its own member of `kind`'s family; a quarter of them draws another kind as well.
inline RawMask random_family_mask(Random& random, const MaskShape& shape, MaskKind kind) {
  RawMask mask(shape);
  for (std::int64_t m = 0; m < shape.batch * shape.heads; ++m) {
    const MaskKind other = static_cast<MaskKind>(random.integer(0, static_cast<int>(MaskKind::count) - 1));
    families::fill(random, m > 0 && random.one_in(4) ? other : kind, mask, m * shape.columns);
  }
  return mask;
}

inline RawMask random_family_mask(Random& random, const MaskShape& shape) {
  return random_family_mask(random, shape,
                            static_cast<MaskKind>(random.integer(0, static_cast<int>(MaskKind::count) - 1)));
}

/// A length that likes the neighbourhood of tile borders, from 1 to `most`.
inline std::int64_t random_length(Random& random, std::int64_t most) {
  std::int64_t n = random.integer(1, most);
  if (random.one_in(2)) n = n / 64 * 64 + random.integer(-1, 1);
  return std::clamp<std::int64_t>(n, 1, most);
}

/// Extents of one attention call as a property test draws them: GQA groups, mask heads 1, Hkv or Hq, rows != columns.
struct AttentionExtents {
  std::int64_t batch, rows, columns, query_heads, kv_heads, mask_heads, head_dim;
};

inline AttentionExtents random_attention_shape(Random& random, std::int64_t most_rows, std::int64_t most_columns) {
  AttentionExtents s{};
  s.batch = random.integer(1, 2);
  s.rows = random_length(random, most_rows);
  s.columns = random.one_in(2) ? std::min(s.rows, most_columns) : random_length(random, most_columns);
  s.kv_heads = random.integer(1, 2);
  s.query_heads = s.kv_heads * pick(random, {1, 1, 2, 3});
  s.mask_heads = pick(random, {std::int64_t{1}, s.kv_heads, s.query_heads});
  s.head_dim = pick(random, {32, 64, 64, 80, 96, 112, 128, 128});
  return s;
}

}  // namespace flashmask::testing
