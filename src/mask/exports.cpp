// Exports: every one is the inverse of an import, and refused where there is none.
#include <algorithm>
#include <array>
#include <memory>

#include "core/check.hpp"
#include "flashmask/imports.hpp"

namespace flashmask::masks {
namespace {

HiddenRows canonical_at(const ColumnMask& mask, std::int64_t flat) {
  return canonical(mask.view().at(flat), static_cast<std::int32_t>(mask.shape().rows));
}

/// The rows a column is visible from if they form one run; begin == end if it is dead.
struct VisibleRun {
  std::int64_t begin = 0, end = 0;
};

/// The smallest interval around the visible rows of a canonical column; hidden rows inside it are the caller's to
/// refuse.
VisibleRun visible_hull(const HiddenRows& c, std::int64_t rows) {
  VisibleRun run{0, rows};
  if (c.uts == 0 && c.ute > 0) run.begin = c.ute;
  if (c.lts < c.lte && c.lte == rows) run.end = c.lts;
  if (run.begin >= run.end) return {0, 0};
  return run;
}

/// Offsets that say the mask if it is a packed sequence at all: columns seen by rows up to the same end are a document
/// (dead columns one without rows), and rows between are documents without columns.
CuSeqlens guess_offsets(const ColumnMask& mask, bool causal) {
  const std::int64_t rows = mask.shape().rows;
  CuSeqlens guess{{0}, {0}, causal};
  const auto close = [&](std::int64_t row_end, std::int64_t column_end) {
    guess.q.push_back(static_cast<std::int32_t>(row_end));
    guess.k.push_back(static_cast<std::int32_t>(column_end));
  };
  std::int64_t j = 0;
  while (j < mask.shape().columns) {
    const std::int64_t begin = j;
    const VisibleRun first = visible_hull(canonical_at(mask, j), rows);
    const auto same_document = [&](const VisibleRun& run) {
      return (run.begin == run.end) == (first.begin == first.end) && run.end == first.end &&
             (causal || run.begin == first.begin);
    };
    while (j < mask.shape().columns && same_document(visible_hull(canonical_at(mask, j), rows))) ++j;
    if (first.begin == first.end) {
      close(guess.q.back(), j);
      continue;
    }
    if (first.begin > guess.q.back()) close(first.begin, begin);  // rows that see nothing
    close(std::max<std::int64_t>(first.end, guess.q.back()), j);
  }
  if (rows > guess.q.back() || guess.q.size() == 1) close(rows, j);
  return guess;
}

/// First column in which the offsets' mask differs, or the number of columns.
std::int64_t first_difference(const ColumnMask& mask, const CuSeqlens& offsets) {
  const ColumnMask said = from_cu_seqlens(offsets.q, offsets.k, {.causal = offsets.causal});
  std::int64_t j = 0;
  while (j < mask.shape().columns && canonical_at(mask, j) == said.view().at(j)) ++j;
  return j;
}

/// The one or two or four values of a canonical column in an outer form; from_startend_row_indices tells if they say
/// it.
std::array<std::int32_t, 4> outer_values(const HiddenRows& c, bool causal, std::int64_t vectors, std::int32_t rows,
                                         std::int32_t diagonal) {
  const bool lower = c.lts < c.lte;
  const bool upper = c.uts < c.ute;
  if (vectors == 4) return {c.lts, c.lte, c.uts, c.ute};
  if (!causal) return {lower ? c.lts : rows, upper ? c.ute : 0, 0, 0};
  if (lower) return {c.lts, c.lte, 0, 0};
  // A run that swallowed the diagonal: what is left of it below.
  if (upper && c.ute > diagonal) return {diagonal, c.ute, 0, 0};
  return {rows, vectors == 1 ? rows : 0, 0, 0};
}

/// Hidden rows of a canonical column inside [begin, end).
std::int64_t hidden_between(const HiddenRows& c, std::int64_t begin, std::int64_t end) {
  const auto overlap = [&](std::int64_t start, std::int64_t stop) {
    return std::max<std::int64_t>(0, std::min(stop, end) - std::max(start, begin));
  };
  return overlap(c.lts, c.lte) + overlap(c.uts, c.ute);
}

}  // namespace

std::vector<std::uint8_t> to_dense(const ColumnMask& mask) {
  const MaskShape& s = mask.shape();
  constexpr std::int64_t cell_limit = std::int64_t{1} << 31;
  const std::int64_t planes = s.batch * s.heads;
  core::check(planes == 0 || s.rows == 0 || s.columns <= cell_limit / s.rows / planes,
              "to_dense: {} x {} x {} x {} cells: expected at most {}", s.batch, s.heads, s.rows, s.columns,
              cell_limit);
  std::vector<std::uint8_t> cells;
  cells.reserve(static_cast<std::size_t>(planes * s.rows * s.columns));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::vector<std::uint8_t> plane = mask.dense(b, h);
      cells.insert(cells.end(), plane.begin(), plane.end());
    }
  }
  return cells;
}

CuSeqlens to_cu_seqlens(const ColumnMask& mask) {
  const MaskShape& s = mask.shape();
  core::check(s.batch == 1 && s.heads == 1,
              "to_cu_seqlens: the mask has batch = {} and heads = {}: expected 1 and 1; export them one by one",
              s.batch, s.heads);
  std::int64_t column = 0;
  for (const bool causal : {true, false}) {
    CuSeqlens offsets = guess_offsets(mask, causal);
    const std::int64_t differs = first_difference(mask, offsets);
    if (differs == s.columns) return offsets;
    column = std::max(column, differs);
  }
  const HiddenRows c = canonical_at(mask, column);
  core::fail(
      ErrorCode::invalid_argument,
      "to_cu_seqlens: batch 0, head 0, column {}: hidden rows [{}, {}) and [{}, {}): no packed sequence, full or "
      "causal, hides them; export the vectors instead",
      column, c.uts, std::max(c.uts, c.ute), c.lts, std::max(c.lts, c.lte));
}

BlockMask to_block_mask(const ColumnMask& mask, std::int64_t block_rows, std::int64_t block_columns) {
  core::check(block_rows >= 1 && block_columns >= 1, "to_block_mask: blocks of {} x {}: expected at least 1",
              block_rows, block_columns);
  const MaskShape& s = mask.shape();
  BlockMask out{s, block_rows, block_columns, {}, {}, {}, {}};
  const std::int64_t lines = s.batch * s.heads * out.row_blocks();
  const std::int64_t across = out.column_blocks();
  out.kv_num_blocks.assign(static_cast<std::size_t>(lines), 0);
  out.full_kv_num_blocks.assign(static_cast<std::size_t>(lines), 0);
  out.kv_indices.assign(static_cast<std::size_t>(lines * across), 0);
  out.full_kv_indices.assign(static_cast<std::size_t>(lines * across), 0);
  for (std::int64_t line = 0; line < lines; ++line) {
    const std::int64_t plane = line / out.row_blocks();
    const std::int64_t r0 = line % out.row_blocks() * block_rows, r1 = std::min(s.rows, r0 + block_rows);
    for (std::int64_t c = 0; c < across; ++c) {
      const std::int64_t k0 = c * block_columns, k1 = std::min(s.columns, k0 + block_columns);
      std::int64_t hidden = 0;  // counted cell by cell: a file format, not the kernels' classification
      for (std::int64_t j = k0; j < k1; ++j)
        hidden += hidden_between(canonical_at(mask, plane * s.columns + j), r0, r1);
      if (hidden == (r1 - r0) * (k1 - k0)) continue;
      auto& counts = hidden == 0 ? out.full_kv_num_blocks : out.kv_num_blocks;
      auto& indices = hidden == 0 ? out.full_kv_indices : out.kv_indices;
      const std::int32_t n = counts[static_cast<std::size_t>(line)]++;
      indices[static_cast<std::size_t>(line * across + n)] = static_cast<std::int32_t>(c);
    }
  }
  return out;
}

MaskMod to_mask_mod(const ColumnMask& mask) {
  return [copy = std::make_shared<const ColumnMask>(mask)](std::int64_t b, std::int64_t h, std::int64_t i,
                                                           std::int64_t j) { return copy->visible(b, h, i, j); };
}

StartEndRowIndices to_startend_row_indices(const ColumnMask& mask) {
  const MaskShape& s = mask.shape();
  const auto rows = static_cast<std::int32_t>(s.rows);
  const ColumnMask wanted = ColumnMask(mask).canonicalise();
  for (const auto& [causal, vectors] : {std::pair{true, 1}, {true, 2}, {false, 2}, {false, 4}}) {
    StartEndRowIndices form{causal, vectors, {}};
    form.values.reserve(static_cast<std::size_t>(s.vector_size() * vectors));
    for (std::int64_t i = 0; i < s.vector_size(); ++i) {
      const std::int64_t diagonal = i % s.columns - (s.columns - s.rows);
      const auto values = outer_values(wanted.view().at(i), causal, vectors, rows,
                                       static_cast<std::int32_t>(std::clamp<std::int64_t>(diagonal, 0, rows)));
      form.values.insert(form.values.end(), values.begin(), values.begin() + vectors);
    }
    if (from_startend_row_indices(s, causal, vectors, form.values) == wanted) return form;
  }
  core::fail(ErrorCode::internal, "to_startend_row_indices: four vectors did not say the mask");
}

}  // namespace flashmask::masks
