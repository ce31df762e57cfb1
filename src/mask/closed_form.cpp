// Visible cells by formula (docs/mask.md), independent of the vectors, so that one can check the other.
#include <algorithm>

#include "core/check.hpp"
#include "flashmask/builders.hpp"
#include "mask/documents.hpp"

namespace flashmask::masks {
namespace {

/// 1 + 2 + ... + n; 0 for n <= 0.
std::int64_t triangle(std::int64_t n) {
  return n <= 0 ? 0 : n % 2 == 0 ? n / 2 * (n + 1) : (n + 1) / 2 * n;
}

/// Cells (i, j) with j <= i + (columns - rows) + reach: the rows' counts clamp(t + reach + 1, 0, columns) over their
/// tokens t, summed by prefix sums of the clamped ramp.
std::int64_t cells_up_to(const MaskShape& s, std::int64_t reach) {
  const auto ramp = [&](std::int64_t m) {
    return m <= s.columns ? triangle(m) : triangle(s.columns) + (m - s.columns) * s.columns;
  };
  return ramp(s.columns + reach) - ramp(s.columns - s.rows + reach);
}

std::int64_t window_cells(const MaskShape& s, WindowSide left, WindowSide right) {
  const std::int64_t far = s.rows + s.columns;
  const std::int64_t upper = right.is_unbounded() ? s.rows * s.columns : cells_up_to(s, std::min(right.count(), far));
  const std::int64_t lower = left.is_unbounded() ? 0 : cells_up_to(s, -std::min(left.count(), far) - 1);
  return upper - lower;
}

std::int64_t global_window_cells(std::int64_t n, std::int64_t global, std::int64_t reach) {
  const std::int64_t g = std::min(global, n), m = n - g, w = std::max<std::int64_t>(0, std::min(reach, m - 1));
  // Twice the sum of m - t over t = 1..w: the diagonals beside the main one.
  return g * n + g * m + m + 2 * (w * m - triangle(w));
}

std::int64_t document_cells(std::string_view name, const std::vector<mask::PlacedDocument>& documents) {
  std::int64_t cells = 0;
  for (const mask::PlacedDocument& d : documents) {
    const std::int64_t n = d.length(), p = d.prefix();
    if (name == "document") {
      cells += n * n;
    } else if (name == "share_question") {
      cells += triangle(p);
      std::int64_t begin = d.prefix_end;
      for (const std::int64_t end : d.answer_ends) {
        cells += p * (end - begin) + triangle(end - begin);
        begin = end;
      }
    } else if (name == "prefix_lm_document") {
      cells += triangle(n) + triangle(p - 1);
    } else {
      cells += triangle(n);
    }
  }
  if (name == "causal_blockwise" && !documents.empty()) {
    cells += documents.back().length() * documents.back().begin;  // the last document sees all before it
  }
  return cells;
}

std::int64_t video_cells(std::int64_t n, std::int64_t frame, WindowSide past) {
  const std::int64_t f = std::min(frame, std::max<std::int64_t>(1, n)), frames = (n + f - 1) / f;
  const std::int64_t reach = past.is_unbounded() ? frames : std::min(past.count(), frames);
  std::int64_t cells = 0;
  for (std::int64_t m = 0; m < frames; ++m) {
    const std::int64_t end = std::min(n, (m + 1) * f);
    cells += (end - m * f) * (end - std::max<std::int64_t>(0, m - reach) * f);
  }
  return cells;
}

std::int64_t tree_cells(const std::vector<TreeNode>& nodes) {
  std::vector<std::int64_t> behind(nodes.size());  // tokens from the root to the end of each node
  std::int64_t cells = 0;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    core::check(nodes[n].parent.value_or(0) >= 0 && nodes[n].parent.value_or(-1) < static_cast<std::int64_t>(n),
                "prefix_tree: node {}: parent = {}: expected an earlier node", n, nodes[n].parent.value_or(0));
    const std::int64_t before = nodes[n].parent ? behind[static_cast<std::size_t>(*nodes[n].parent)] : 0;
    behind[n] = before + nodes[n].length;
    cells += nodes[n].length * before + triangle(nodes[n].length);
  }
  return cells;
}

/// Sum over batch rows of a count that differs between them.
template <typename CellsOf>
std::int64_t over_batch(const MaskShape& shape, CellsOf&& cells_of) {
  std::int64_t cells = 0;
  for (std::int64_t b = 0; b < shape.batch; ++b) cells += cells_of(b);
  return cells;
}

/// Cells of all batch rows of one head where rows == columns.
std::optional<std::int64_t> square_cells(std::string_view name, const MaskShape& s, const BuilderOptions& o) {
  const std::int64_t n = s.columns;
  if (name == "global_sliding_window") return s.batch * global_window_cells(n, o.global, *o.window);
  if (name == "prefix_lm_causal") return s.batch * (triangle(n) + triangle(*o.prefix - 1));
  if (name == "chunked") {
    const std::int64_t c = std::min(*o.chunk, std::max<std::int64_t>(1, n));
    return s.batch * (n / c * triangle(c) + triangle(n % c));
  }
  if (name == "video_block_causal") return s.batch * video_cells(n, *o.frame, o.past);
  if (name == "qk_sparse_blocks") {
    std::int64_t cells = triangle(n);
    for (const SparseBlock& b : o.blocks) cells -= (b.column_end - b.column_begin) * (b.row_end - b.row_begin);
    return s.batch * cells;
  }
  if (name == "qk_sparse") {
    std::int64_t cells = triangle(n);
    for (const Segment& segment : o.segments) cells -= triangle(segment.length);
    return s.batch * cells;
  }
  if (name == "prefix_tree") {
    core::check(o.trees.size() == 1 || std::ssize(o.trees) == s.batch,
                "prefix_tree: {} node lists for batch = {}: expected one for all batch rows or one each",
                o.trees.size(), s.batch);
    return over_batch(
        s, [&](std::int64_t b) { return tree_cells(o.trees[static_cast<std::size_t>(o.trees.size() == 1 ? 0 : b)]); });
  }
  if (name == "random_eviction" || name == "hash_sparse") return std::nullopt;
  return over_batch(
      s, [&](std::int64_t b) { return document_cells(name, mask::place_documents(name, o.documents, s, b)); });
}

}  // namespace

std::optional<std::int64_t> closed_form_visible_cells(std::string_view name, const BuilderOptions& options) {
  const auto known = builder_names();
  core::check(std::ranges::find(known, name, &BuilderName::name) != known.end(),
              "mask builder \"{}\" is not known: builder_names() lists the known ones", name);
  const BuilderOptions o = with_defaults(name, options);
  const MaskShape s = shape_of(o);
  core::check(*o.chunk >= 1 && *o.frame >= 1, "{}: chunk = {}, frame = {}: expected at least 1", name, *o.chunk,
              *o.frame);
  if (name == "full") return s.batch * s.heads * s.rows * s.columns;
  if (name == "causal") return s.batch * s.heads * cells_up_to(s, 0);
  if (name == "sliding_window") {
    return s.batch * s.heads * window_cells(s, WindowSide::keys(*o.window - 1), WindowSide::keys(0));
  }
  if (name == "window") return s.batch * s.heads * window_cells(s, o.left, o.right);
  if (s.rows != s.columns) return std::nullopt;
  const auto cells = square_cells(name, s, o);
  return cells ? std::optional(*cells * s.heads) : std::nullopt;
}

}  // namespace flashmask::masks
