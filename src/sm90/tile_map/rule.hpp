// The few decisions behind a tile map, shared word for word by the device builder and its host mirror. Which tile is
// masked, partial or unmasked is not decided here but by flashmask::classify.
#pragma once

#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90 {

/// How a map departs from the plain one of rows, blocks and min/max. Only kernels made for a form can read its map.
struct MapForm {
  /// Query heads whose rows share a row tile of block_m mask rows: accumulator row r belongs to mask row r /
  /// packed_heads. A power of two up to 16, the rows of a warp's strip. Above 1 the map is called packed, and a block
  /// of a row list may start at any unit, a multiple of 16 columns: the list covers what its row tile sees with as few
  /// blocks as there can be, from the first visible unit, then from the next one that is not covered, and so on.
  /// Column lists stay on the grid of blocks.
  std::int32_t packed_heads = 1;
  /// exact: what min/max calls partial is asked column by column.
  TileRule rule = TileRule::minmax;
  friend bool operator==(const MapForm&, const MapForm&) = default;
};

/// Tile grid of a mask, what both builders need to know of its shape. Rows and columns stay a whole tile below 2^31
/// (check_map_shape), so the ends of every tile are int32.
struct TileGrid {
  std::int32_t rows, columns;
  std::int32_t block_m, block_n;
  std::int32_t row_tiles, column_blocks;
  std::int32_t padded_columns;
  std::int32_t packed_shift;  ///< log2 of packed_heads
  std::int32_t column_units;  ///< of a block, 1 unless packed
  TileRule rule;

  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t subtiles() const {
    return (block_m << packed_shift) / subtile_rows;
  }
  /// Mask rows of a subtile.
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t subtile_extent() const {
    return subtile_rows >> packed_shift;
  }
  /// Columns of a unit, the step in which blocks of row lists start.
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t unit() const { return block_n / column_units; }
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t units() const { return (columns + unit() - 1) / unit(); }
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t padded_units() const { return padded_columns / unit(); }
};

/// Accumulator rows of a warp.
inline constexpr std::int32_t strip_rows = 16;
/// Columns of a unit of a packed map: what one tensor instruction takes of V.
inline constexpr std::int32_t unit_columns = 16;

[[nodiscard]] constexpr TileGrid tile_grid(std::int32_t rows, std::int32_t columns, TileShape shape,
                                           const MapForm& form = {}) {
  const auto blocks = [](std::int64_t extent, std::int64_t block) {
    return static_cast<std::int32_t>((extent + block - 1) / block);
  };
  const std::int32_t column_blocks = blocks(columns, shape.block_n);
  const std::int32_t column_units = form.packed_heads > 1 ? shape.block_n / unit_columns : 1;
  std::int32_t packed_shift = 0;
  while ((1 << packed_shift) < form.packed_heads) ++packed_shift;
  // block_n is a multiple of 8, so whole blocks are already 16-byte aligned. Blocks that start anywhere may end a block
  // beyond the last one, those of a list that fell back to one run two.
  const std::int32_t beyond = columns > 0 && column_units > 1 ? 2 : 0;
  return {rows,
          columns,
          shape.block_m,
          shape.block_n,
          blocks(rows, shape.block_m),
          column_blocks,
          (column_blocks + beyond) * shape.block_n,
          packed_shift,
          column_units,
          form.rule};
}

/// Class of rows [r0, r1) x columns [first, end) by the exact rule: a tile is masked (unmasked) iff the one rule says
/// so of each of its columns alone, whose two runs neither overlap nor touch.
template <typename Columns>
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr TileClass classify_exact(std::int32_t first, std::int32_t end,
                                                                       std::int32_t r0, std::int32_t r1,
                                                                       Columns&& column) {
  bool masked = true, unmasked = true;
  for (std::int32_t c = first; c < end && (masked || unmasked); ++c) {
    BlockBounds alone = BlockBounds::none();
    alone.include(column(c));
    const TileClass of_column = classify(alone, r0, r1);
    masked = masked && of_column == TileClass::masked;
    unmasked = unmasked && of_column == TileClass::unmasked;
  }
  return masked ? TileClass::masked : unmasked ? TileClass::unmasked : TileClass::partial;
}

/// Class word of (row tile, `width` columns from `first_column`); 0 iff every subtile is masked. What min/max over the
/// columns' bounds calls partial, `refine(first, end, r0, r1)` decides for the columns that exist.
template <typename Refine>
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t class_word(const TileGrid& grid, const BlockBounds& bounds,
                                                                       std::int32_t row_tile, std::int32_t first_column,
                                                                       std::int32_t width, Refine&& refine) {
  const bool ragged = first_column + width > grid.columns;
  const std::int32_t end = ragged ? grid.columns : first_column + width;
  std::uint32_t word = 0;
  for (std::int32_t s = 0; s < grid.subtiles(); ++s) {
    const std::int32_t r0 = row_tile * grid.block_m + s * grid.subtile_extent();
    if (r0 >= grid.rows) break;  // wholly beyond the rows: masked
    const std::int32_t r1 = r0 + grid.subtile_extent() < grid.rows ? r0 + grid.subtile_extent() : grid.rows;
    TileClass c = classify(bounds, r0, r1);
    if (c == TileClass::partial) c = refine(first_column, end, r0, r1);
    if (ragged && c == TileClass::unmasked) c = TileClass::partial;  // the columns beyond the end must be cut
    word |= static_cast<std::uint32_t>(c) << (2 * s);
  }
  return word;
}

/// The class word by min/max alone.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t minmax_word(const TileGrid& grid, const BlockBounds& bounds,
                                                                        std::int32_t row_tile,
                                                                        std::int32_t first_column, std::int32_t width) {
  return class_word(grid, bounds, row_tile, first_column, width,
                    [](std::int32_t, std::int32_t, std::int32_t, std::int32_t) { return TileClass::partial; });
}

/// The class word by the grid's rule; `column(c)` gives the canonical quadruple of column c of the mask.
template <typename Columns>
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t rule_word(const TileGrid& grid, const BlockBounds& bounds,
                                                                      std::int32_t row_tile, std::int32_t first_column,
                                                                      std::int32_t width, Columns&& column) {
  if (grid.rule == TileRule::minmax) return minmax_word(grid, bounds, row_tile, first_column, width);
  return class_word(grid, bounds, row_tile, first_column, width,
                    [&](std::int32_t first, std::int32_t end, std::int32_t r0, std::int32_t r1) {
                      return classify_exact(first, end, r0, r1, column);
                    });
}

/// Bounds of the block that starts at unit `start`; `bounds(u)` gives those of unit u.
template <typename Bounds>
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr BlockBounds block_bounds(const TileGrid& grid, std::int32_t start,
                                                                       Bounds&& bounds) {
  BlockBounds all = bounds(start);
  for (std::int32_t u = 1; u < grid.column_units; ++u) all.include(bounds(start + u));
  return all;
}

/// Class word of the block that starts at unit `start`.
template <typename Bounds, typename Columns>
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t block_word(const TileGrid& grid, std::int32_t row_tile,
                                                                       std::int32_t start, Bounds&& bounds,
                                                                       Columns&& column) {
  return rule_word(grid, block_bounds(grid, start, bounds), row_tile, start * grid.unit(), grid.block_n, column);
}

/// Whether a row tile sees anything of unit u alone. By either rule a block with such a unit is not masked: what covers
/// all columns of a block covers those of each unit.
template <typename Bounds, typename Columns>
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr bool sees_unit(const TileGrid& grid, std::int32_t row_tile,
                                                             std::int32_t u, Bounds&& bounds, Columns&& column) {
  return rule_word(grid, bounds(u), row_tile, u * grid.unit(), grid.unit(), column) != 0;
}

/// Every subtile that has rows, partial: what a list that does not fit says of all its blocks.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t all_partial(const TileGrid& grid, std::int32_t row_tile) {
  std::uint32_t word = 0;
  for (std::int32_t s = 0; s < grid.subtiles(); ++s) {
    if (row_tile * grid.block_m + s * grid.subtile_extent() >= grid.rows) break;
    word |= static_cast<std::uint32_t>(TileClass::partial) << (2 * s);
  }
  return word;
}

/// Number of set bits among the low bits (even positions) of the subtiles.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t count_subtiles(std::uint32_t low_bits) {
  std::uint32_t x = low_bits & 0x5555U;
  x = (x & 0x3333U) + (x >> 2 & 0x3333U);
  x = (x & 0x0f0fU) + (x >> 4 & 0x0f0fU);
  return (x + (x >> 8)) & 0xffU;
}

[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t partial_subtiles(std::uint32_t classes) {
  return count_subtiles(classes & ~(classes >> 1));
}

[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t unmasked_subtiles(std::uint32_t classes) {
  return count_subtiles(classes >> 1 & ~classes);
}

/// Cost of visiting a block, in thousandths of an unmasked one: a tile is as slow as its slowest warpgroup.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int64_t block_cost(std::uint32_t classes, const TileCosts& costs) {
  if (classes == 0) return 0;
  return has_partial(classes) ? costs.partial : costs.unmasked;
}

/// Where a list of `wanted` runs stands in an array of `capacity` runs followed by one fallback run per list.
struct Placement {
  std::int32_t begin, count;
  bool fits;
};

[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr Placement place(std::int64_t offset, std::int64_t wanted,
                                                              std::int32_t capacity, std::int32_t list) {
  if (wanted == 0) return {0, 0, true};
  if (offset + wanted <= capacity) return {static_cast<std::int32_t>(offset), static_cast<std::int32_t>(wanted), true};
  return {capacity + list, 1, false};
}

/// What the cost order sorts by, descending: rows before columns; rows by section of matrices, whose K and V then stay
/// in L2 together; then cost, whose low bits go where 31 bits do not hold it.
struct OrderRule {
  std::int32_t section = 1;   ///< matrices a section of the row order
  std::int32_t sections = 1;  ///< in all
  std::int32_t section_shift = 31;
  std::int32_t cost_shift = 0;

  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t row_key(std::int64_t cost, std::int32_t matrix) const {
    const auto later = static_cast<std::uint32_t>(sections - 1 - matrix / section);
    return 1U << 31 | (sections == 1 ? 0U : later << section_shift) | static_cast<std::uint32_t>(cost >> cost_shift);
  }
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t column_key(std::int64_t cost) const {
    return static_cast<std::uint32_t>(cost >> cost_shift);
  }
};

/// `section`: matrices that are drawn before the next ones begin; 0: all at once.
[[nodiscard]] constexpr OrderRule order_rule(const TileGrid& grid, const TileCosts& costs, std::int32_t matrices,
                                             std::int32_t section) {
  OrderRule rule;
  rule.section = section > 0 && section < matrices ? section : matrices > 0 ? matrices : 1;
  rule.sections = matrices > 0 ? (matrices + rule.section - 1) / rule.section : 1;
  while ((std::int64_t{1} << (31 - rule.section_shift)) < rule.sections) --rule.section_shift;
  const std::int64_t longest = grid.row_tiles > grid.column_blocks ? grid.row_tiles : grid.column_blocks;
  std::int64_t most = longest * (costs.partial > costs.unmasked ? costs.partial : costs.unmasked);
  for (; most >= (std::int64_t{1} << rule.section_shift); most >>= 1) ++rule.cost_shift;
  return rule;
}

/// HiddenRows::hides as one expression without short cuts: as branches they cost three times the comparisons.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr bool hides_branch_free(const HiddenRows& c, std::int32_t row) {
  return (static_cast<int>(row >= c.lts) & static_cast<int>(row < c.lte)) |
         (static_cast<int>(row >= c.uts) & static_cast<int>(row < c.ute));
}

/// Bitmap word of thread t: bit bitmap_bit(i) set iff element i of its accumulator is visible. `column(c)` gives the
/// canonical quadruple of column c of the block; padded columns hide every row, and rows beyond the end are hidden
/// here.
template <typename Columns>
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint64_t bitmap_word(const TileGrid& grid, std::int32_t row_tile,
                                                                        std::int32_t t, Columns&& column) {
  const std::int32_t low = row_tile * grid.block_m + (accumulator_row(t, 0) >> grid.packed_shift);
  const std::int32_t high = row_tile * grid.block_m + (accumulator_row(t, 2) >> grid.packed_shift);
  constexpr std::uint32_t low_bits = 0x00ff00ffU;  // elements of the upper of the thread's two rows
  const std::uint32_t has_rows = (low < grid.rows ? low_bits : 0U) | (high < grid.rows ? low_bits << 8 : 0U);
  std::uint32_t words[2] = {0, 0};
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (std::int32_t pair = 0; pair < max_bitmap_columns / 8; ++pair) {  // 4 elements: two columns of two rows
    if (pair * 8 >= grid.block_n) break;
    for (std::int32_t side = 0; side < 2; ++side) {
      const HiddenRows c = column(accumulator_column(t, 4 * pair + side));
      const std::uint32_t bit = 1U << (16 * side + pair % 8);  // bitmap_bit(4 * pair + side)
      words[pair / 8] |= hides_branch_free(c, low) ? 0U : bit;
      words[pair / 8] |= hides_branch_free(c, high) ? 0U : bit << 8;
    }
  }
  return (words[0] & has_rows) | std::uint64_t{words[1] & has_rows} << 32;
}

/// What one build found, exact; 64-bit because tile counts pass 2^31 on real jobs.
struct MapCounts {
  std::uint64_t partial_subtiles = 0;  ///< 64-row subtiles x column blocks of the row lists
  std::uint64_t unmasked_subtiles = 0;
  std::uint64_t row_blocks_visited = 0;     ///< (row tile, column block) pairs in the row lists
  std::uint64_t column_blocks_visited = 0;  ///< (column block, row tile) pairs in the column lists
  std::uint64_t partial_blocks = 0;         ///< pairs of the row lists with some partial subtile: bitmaps wanted
  std::uint64_t bitmap_blocks = 0;          ///< of these, pairs that got a bitmap
  std::uint64_t runs = 0;                   ///< runs wanted by all lists
  std::uint64_t fallback_lists = 0;         ///< lists whose runs did not fit

  friend bool operator==(const MapCounts&, const MapCounts&) = default;

  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr MapCounts operator+(const MapCounts& o) const {
    return {partial_subtiles + o.partial_subtiles,
            unmasked_subtiles + o.unmasked_subtiles,
            row_blocks_visited + o.row_blocks_visited,
            column_blocks_visited + o.column_blocks_visited,
            partial_blocks + o.partial_blocks,
            bitmap_blocks + o.bitmap_blocks,
            runs + o.runs,
            fallback_lists + o.fallback_lists};
  }
};

/// Room for what depends on the mask's content. What does not fit falls back to intervals: slower, never wrong.
struct MapCapacity {
  std::int32_t row_runs = 0;
  std::int32_t column_runs = 0;
  std::int32_t bitmaps = 0;

  friend bool operator==(const MapCapacity&, const MapCapacity&) = default;
};

}  // namespace flashmask::sm90
