// Builders whose columns follow from their own number alone.
#include <algorithm>
#include <string>

#include "core/check.hpp"
#include "flashmask/builders.hpp"
#include "mask/random.hpp"
#include "mask/token_columns.hpp"

namespace flashmask::masks {

using mask::causal_column;
using mask::end_token;
using mask::fill;
using mask::first_token;
using mask::TokenColumn;

ColumnMask full(const MaskShape& shape) {
  return ColumnMask(shape);
}

ColumnMask causal(const MaskShape& shape) {
  return fill(shape, [](std::int64_t, std::int64_t j) { return causal_column(j); });
}

ColumnMask sliding_window(const MaskShape& shape, std::int64_t keys) {
  core::check(keys >= 1,
              "sliding_window: window = {} keys: expected at least 1 (the own key counts); for no window use causal",
              keys);
  return window(shape, WindowSide::keys(keys - 1), WindowSide::keys(0));
}

ColumnMask window(const MaskShape& shape, WindowSide left, WindowSide right) {
  for (const auto& [name, side] : {std::pair{"left", left}, std::pair{"right", right}}) {
    core::check(side.is_unbounded() || side.count() >= 0,
                "window: {} = {} keys: expected at least 0; say WindowSide::unbounded() for no bound", name,
                side.is_unbounded() ? 0 : side.count());
  }
  // A side that reaches past both ends hides nothing more, and clamping it keeps the sums below in range.
  const std::int64_t reach = shape.rows + shape.columns;
  return fill(shape, [&](std::int64_t, std::int64_t j) {
    TokenColumn c;
    if (!left.is_unbounded()) c.lts = j + std::min(left.count(), reach) + 1, c.lte = end_token;
    if (!right.is_unbounded()) c.uts = first_token, c.ute = j - std::min(right.count(), reach);
    return c;
  });
}

ColumnMask global_sliding_window(const MaskShape& shape, std::int64_t global, std::int64_t reach) {
  mask::check_rows_are_tokens("global_sliding_window", shape);
  core::check(global >= 0, "global_sliding_window: global = {} tokens: expected at least 0", global);
  core::check(reach >= 0, "global_sliding_window: window = {} keys to each side: expected at least 0", reach);
  const std::int64_t w = std::min(reach, shape.columns);
  return fill(shape, [&](std::int64_t, std::int64_t j) {
    TokenColumn c;
    if (j < global) return c;
    c.lts = j + w + 1, c.lte = end_token;
    c.uts = global, c.ute = j - w;  // empty up to column global + w
    return c;
  });
}

ColumnMask prefix_lm_causal(const MaskShape& shape, std::int64_t prefix) {
  mask::check_rows_are_tokens("prefix_lm_causal", shape);
  core::check(prefix >= 0 && prefix <= shape.columns, "prefix_lm_causal: prefix = {}: expected 0 to columns = {}",
              prefix, shape.columns);
  return fill(shape, [&](std::int64_t, std::int64_t j) { return j < prefix ? TokenColumn{} : causal_column(j); });
}

ColumnMask chunked(const MaskShape& shape, std::int64_t chunk) {
  mask::check_rows_are_tokens("chunked", shape);
  core::check(chunk >= 1, "chunked: chunk = {} tokens: expected at least 1", chunk);
  const std::int64_t c = std::min(chunk, std::max<std::int64_t>(1, shape.columns));
  return fill(shape, [&](std::int64_t, std::int64_t j) { return causal_column(j, (j / c + 1) * c, end_token); });
}

ColumnMask video_block_causal(const MaskShape& shape, std::int64_t frame, WindowSide past) {
  mask::check_rows_are_tokens("video_block_causal", shape);
  core::check(frame >= 1, "video_block_causal: frame = {} tokens: expected at least 1", frame);
  core::check(past.is_unbounded() || past.count() >= 0, "video_block_causal: past = {} frames: expected at least 0",
              past.is_unbounded() ? 0 : past.count());
  const std::int64_t f = std::min(frame, std::max<std::int64_t>(1, shape.columns));
  return fill(shape, [&](std::int64_t, std::int64_t j) {
    const std::int64_t own = j / f;
    TokenColumn c = causal_column(own * f);
    if (!past.is_unbounded()) c.lts = (own + std::min(past.count(), shape.columns) + 1) * f, c.lte = end_token;
    return c;
  });
}

ColumnMask qk_sparse_blocks(const MaskShape& shape, std::span<const SparseBlock> blocks) {
  mask::check_rows_are_tokens("qk_sparse_blocks", shape);
  std::vector<SparseBlock> sorted(blocks.begin(), blocks.end());
  std::erase_if(sorted, [](const SparseBlock& b) { return b.column_begin == b.column_end; });
  std::ranges::sort(sorted, {}, &SparseBlock::column_begin);
  std::int64_t free_from = 0;
  for (const SparseBlock& b : sorted) {
    core::check(b.column_begin >= free_from && b.column_begin <= b.column_end && b.column_end <= shape.columns,
                "qk_sparse_blocks: columns [{}, {}): expected ascending, disjoint ranges inside [0, {}); the range "
                "before ends at {}",
                b.column_begin, b.column_end, shape.columns, free_from);
    core::check(b.row_begin >= b.column_end && b.row_begin <= b.row_end && b.row_end <= shape.columns,
                "qk_sparse_blocks: rows [{}, {}) of columns [{}, {}): expected a range inside [{}, {}), below the "
                "diagonal",
                b.row_begin, b.row_end, b.column_begin, b.column_end, b.column_end, shape.columns);
    free_from = b.column_end;
  }
  return fill(shape, [&](std::int64_t, std::int64_t j) {
    const auto next = std::ranges::upper_bound(sorted, j, {}, &SparseBlock::column_begin);
    if (next == sorted.begin() || j >= std::prev(next)->column_end) return causal_column(j);
    return causal_column(j, std::prev(next)->row_begin, std::prev(next)->row_end);
  });
}

ColumnMask qk_sparse(const MaskShape& shape, std::span<const Segment> segments) {
  mask::check_rows_are_tokens("qk_sparse", shape);
  std::vector<Segment> sorted(segments.begin(), segments.end());
  std::erase_if(sorted, [](const Segment& s) { return s.length == 0; });
  std::ranges::sort(sorted, {}, &Segment::begin);
  std::int64_t free_from = 0;
  for (const Segment& s : sorted) {
    core::check(s.begin >= free_from && s.length > 0 && s.length <= shape.columns - s.begin,
                "qk_sparse: segment of {} tokens from {}: expected disjoint segments inside [0, {}); the one before "
                "ends at {}",
                s.length, s.begin, shape.columns, free_from);
    free_from = s.begin + s.length;
  }
  return fill(shape, [&](std::int64_t, std::int64_t j) {
    const auto next = std::ranges::upper_bound(sorted, j, {}, &Segment::begin);
    if (next == sorted.begin()) return causal_column(j);
    const Segment& s = *std::prev(next);
    return j < s.begin + s.length ? causal_column(j, j, s.begin + s.length) : causal_column(j);
  });
}

ColumnMask random_eviction(const MaskShape& shape, std::uint64_t seed) {
  mask::check_rows_are_tokens("random_eviction", shape);
  ColumnMask result(shape);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      for (std::int64_t j = 0; j < shape.columns; ++j) {
        const std::int64_t lts = j + 1 + mask::draw_below(shape.columns - j, {seed, b, h, j});
        result.set(b, h, j, mask::to_rows(causal_column(j, lts, end_token), shape));
      }
    }
  }
  return result;
}

}  // namespace flashmask::masks
