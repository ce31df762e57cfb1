// Imports of formats that speak about cells: dense masks, mask_mod with BlockMask, attention slices.
#include <algorithm>
#include <limits>

#include "core/check.hpp"
#include "flashmask/imports.hpp"
#include "mask/column_runs.hpp"

namespace flashmask::masks {
namespace {

using mask::ColumnPlace;
using mask::RowRun;

/// Fills one (batch, head) from visible(row, column), row by row because dense masks lie that way in memory.
template <typename Visible>
void fill_plane(ColumnMask& result, std::string_view format, std::int64_t batch, std::int64_t head, Visible&& visible) {
  const auto rows = static_cast<std::int32_t>(result.shape().rows);
  const auto columns = static_cast<std::size_t>(result.shape().columns);
  // An open run has its end at `rows`; a column that would start a third run is reported with all of its runs.
  std::vector<HiddenRows> hidden(columns, HiddenRows{rows, 0, rows, 0});
  std::vector<std::uint8_t> runs(columns, 0), open(columns, 0);
  for (std::int32_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      const bool hides = !visible(i, static_cast<std::int64_t>(j));
      if (hides == (open[j] != 0)) continue;
      open[j] = hides ? 1 : 0;
      HiddenRows& c = hidden[j];
      if (!hides) {
        (runs[j] == 1 ? c.ute : c.lte) = i;
      } else if (++runs[j] == 1) {
        c.uts = i, c.ute = rows;
      } else if (runs[j] == 2) {
        c.lts = i, c.lte = rows;
      } else {
        std::vector<RowRun> all;
        for (std::int64_t r = 0; r < rows; ++r) {
          if (visible(r, static_cast<std::int64_t>(j))) continue;
          if (all.empty() || all.back().end != r) all.push_back({r, r});
          all.back().end = r + 1;
        }
        mask::fail_runs({format, batch, head, static_cast<std::int64_t>(j)}, all);
      }
    }
  }
  for (std::size_t j = 0; j < columns; ++j) {
    result.set(batch, head, static_cast<std::int64_t>(j), canonical(hidden[j], rows));
  }
}

enum class BlockState : std::uint8_t { absent, partial, full };

void check_array(std::string_view name, const std::vector<std::int32_t>& array, std::int64_t expected) {
  core::check(std::ssize(array) == expected, "block_mask: {} has {} entries: expected {}", name, array.size(),
              expected);
}

/// Marks the listed blocks of one (batch, head) with `state`.
void mark_blocks(const BlockMask& blocks, std::string_view name, const std::vector<std::int32_t>& counts,
                 const std::vector<std::int32_t>& indices, std::int64_t plane, BlockState state,
                 std::vector<BlockState>& states) {
  const std::int64_t across = blocks.column_blocks();
  for (std::int64_t r = 0; r < blocks.row_blocks(); ++r) {
    const std::int64_t line = plane * blocks.row_blocks() + r;
    const std::int32_t count = counts[static_cast<std::size_t>(line)];
    core::check(count >= 0 && count <= across,
                "block_mask: {}: {} blocks in row block {} of plane {}: expected 0 to {}", name, count, r, plane,
                across);
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int32_t c = indices[static_cast<std::size_t>(line * across + n)];
      core::check(c >= 0 && c < across, "block_mask: {}: column block {} in row block {} of plane {}: expected 0 to {}",
                  name, c, r, plane, across - 1);
      BlockState& at = states[static_cast<std::size_t>(r * across + c)];
      core::check(at == BlockState::absent, "block_mask: {}: row block {}, column block {} of plane {} is named twice",
                  name, r, c, plane);
      at = state;
    }
  }
}

void check_slice(const AttnSlice& s, std::size_t number, std::int64_t rows, std::int64_t columns) {
  core::check(s.row_begin >= 0 && s.row_begin <= s.row_end && s.row_end <= rows && s.column_begin >= 0 &&
                  s.column_begin <= s.column_end && s.column_end <= columns,
              "attn_slices: slice {}: rows [{}, {}), columns [{}, {}): expected ranges inside [0, {}) and [0, {})",
              number, s.row_begin, s.row_end, s.column_begin, s.column_end, rows, columns);
  core::check(s.type <= SliceType::bi_causal,
              "attn_slices: slice {}: type {}: expected 0 full, 1 causal, 2 inverse causal or 3 bi-causal", number,
              static_cast<int>(s.type));
}

/// Rows of a slice that see column `column_begin + j`.
RowRun rows_of(const AttnSlice& s, std::int64_t j) {
  const bool lower = s.type == SliceType::causal || s.type == SliceType::bi_causal;
  const bool upper = s.type == SliceType::inverse_causal || s.type == SliceType::bi_causal;
  const std::int64_t shift = (s.column_end - s.column_begin) - (s.row_end - s.row_begin);
  RowRun run{s.row_begin, s.row_end};
  if (lower) run.begin = std::max(run.begin, s.row_begin + j - shift);
  if (upper) run.end = std::min(run.end, s.row_begin + j + 1);
  return run;
}

}  // namespace

ColumnMask from_dense(const MaskShape& shape, std::span<const std::uint8_t> cells) {
  ColumnMask result(shape);
  const std::int64_t planes = shape.batch * shape.heads;
  const std::int64_t plane = shape.rows * shape.columns;  // below 2^62
  core::check(planes == 0 || plane <= std::numeric_limits<std::int64_t>::max() / planes,
              "dense: {} x {} x {} x {} cells do not fit 64 bits", shape.batch, shape.heads, shape.rows, shape.columns);
  core::check(std::ssize(cells) == planes * plane,
              "dense: {} cells: expected batch x heads x rows x columns = {} x {} x {} x {} = {}", cells.size(),
              shape.batch, shape.heads, shape.rows, shape.columns, planes * plane);
  for (std::int64_t p = 0; p < planes; ++p) {
    const std::uint8_t* at = cells.data() + p * plane;
    fill_plane(result, "dense", p / shape.heads, p % shape.heads,
               [&](std::int64_t i, std::int64_t j) { return at[i * shape.columns + j] != 0; });
  }
  return result;
}

ColumnMask from_mask_mod(const MaskShape& shape, const MaskMod& mask_mod) {
  core::check(static_cast<bool>(mask_mod), "mask_mod is empty: expected a function of (batch, head, row, column)");
  ColumnMask result(shape);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      fill_plane(result, "mask_mod", b, h, [&](std::int64_t i, std::int64_t j) { return mask_mod(b, h, i, j); });
    }
  }
  return result;
}

ColumnMask from_block_mask(const BlockMask& blocks, const MaskMod& mask_mod) {
  core::check(static_cast<bool>(mask_mod), "mask_mod is empty: expected a function of (batch, head, row, column)");
  core::check(blocks.block_rows >= 1 && blocks.block_columns >= 1, "block_mask: blocks of {} x {}: expected at least 1",
              blocks.block_rows, blocks.block_columns);
  ColumnMask result(blocks.shape);
  const std::int64_t lines = blocks.shape.batch * blocks.shape.heads * blocks.row_blocks();
  check_array("kv_num_blocks", blocks.kv_num_blocks, lines);
  check_array("kv_indices", blocks.kv_indices, lines * blocks.column_blocks());
  check_array("full_kv_num_blocks", blocks.full_kv_num_blocks, lines);
  check_array("full_kv_indices", blocks.full_kv_indices, lines * blocks.column_blocks());
  for (std::int64_t b = 0; b < blocks.shape.batch; ++b) {
    for (std::int64_t h = 0; h < blocks.shape.heads; ++h) {
      const std::int64_t plane = b * blocks.shape.heads + h;
      std::vector<BlockState> states(static_cast<std::size_t>(blocks.row_blocks() * blocks.column_blocks()),
                                     BlockState::absent);
      mark_blocks(blocks, "kv_indices", blocks.kv_num_blocks, blocks.kv_indices, plane, BlockState::partial, states);
      mark_blocks(blocks, "full_kv_indices", blocks.full_kv_num_blocks, blocks.full_kv_indices, plane, BlockState::full,
                  states);
      fill_plane(result, "block_mask", b, h, [&](std::int64_t i, std::int64_t j) {
        const std::int64_t at = i / blocks.block_rows * blocks.column_blocks() + j / blocks.block_columns;
        const BlockState state = states[static_cast<std::size_t>(at)];
        return state == BlockState::full || (state == BlockState::partial && mask_mod(b, h, i, j));
      });
    }
  }
  return result;
}

ColumnMask from_attn_slices(std::int64_t rows, std::int64_t columns, std::span<const AttnSlice> slices) {
  ColumnMask result({1, 1, rows, columns});
  std::vector<std::size_t> order;  // slices by their first column
  for (std::size_t s = 0; s < slices.size(); ++s) {
    check_slice(slices[s], s, rows, columns);
    order.push_back(s);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t s) { return slices[s].column_begin; });
  std::vector<std::size_t> active;
  std::size_t next = 0;
  for (std::int64_t j = 0; j < columns; ++j) {
    for (; next < order.size() && slices[order[next]].column_begin <= j; ++next) active.push_back(order[next]);
    std::erase_if(active, [&](std::size_t s) { return slices[s].column_end <= j; });
    std::vector<std::pair<RowRun, std::size_t>> seen;
    for (const std::size_t s : active) {
      const RowRun run = rows_of(slices[s], j - slices[s].column_begin);
      if (run.begin < run.end) seen.emplace_back(run, s);
    }
    std::ranges::sort(seen, {}, [](const auto& entry) { return entry.first.begin; });
    std::vector<RowRun> visible;
    for (std::size_t n = 0; n < seen.size(); ++n) {
      core::check(
          n == 0 || seen[n - 1].first.end <= seen[n].first.begin,
          "attn_slices: slices {} and {} both hold row {}, column {}: expected disjoint slices, a cell in two of "
          "them counts twice",
          n == 0 ? 0 : seen[n - 1].second, seen[n].second, seen[n].first.begin, j);
      visible.push_back(seen[n].first);
    }
    result.set(0, 0, j, mask::column_of_visible({"attn_slices", 0, 0, j}, visible, rows));
  }
  return result;
}

}  // namespace flashmask::masks
