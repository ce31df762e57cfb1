// The few decisions behind a tile map, shared word for word by the device builder and its host mirror. Which tile is
// masked, partial or unmasked is not decided here but by flashmask::classify.
#pragma once

#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90 {

/// Tile grid of a mask, what both builders need to know of its shape. Rows and columns stay a whole tile below 2^31
/// (check_map_shape), so the ends of every tile are int32.
struct TileGrid {
  std::int32_t rows, columns;
  std::int32_t block_m, block_n;
  std::int32_t row_tiles, column_blocks;
  std::int32_t padded_columns;

  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t subtiles() const { return block_m / subtile_rows; }
};

[[nodiscard]] constexpr TileGrid tile_grid(std::int32_t rows, std::int32_t columns, TileShape shape) {
  const auto blocks = [](std::int64_t extent, std::int64_t block) {
    return static_cast<std::int32_t>((extent + block - 1) / block);
  };
  const std::int32_t column_blocks = blocks(columns, shape.block_n);
  // block_n is a multiple of 8, so whole blocks are already 16-byte aligned.
  return {rows,
          columns,
          shape.block_m,
          shape.block_n,
          blocks(rows, shape.block_m),
          column_blocks,
          column_blocks * shape.block_n};
}

/// Class word of (row tile, column block) from the block's bounds; 0 iff every subtile is masked.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t class_word(const TileGrid& grid, const BlockBounds& bounds,
                                                                       std::int32_t row_tile,
                                                                       std::int32_t column_block) {
  const bool ragged = column_block == grid.column_blocks - 1 && grid.columns % grid.block_n != 0;
  std::uint32_t word = 0;
  for (std::int32_t s = 0; s < grid.subtiles(); ++s) {
    const std::int32_t r0 = row_tile * grid.block_m + s * subtile_rows;
    if (r0 >= grid.rows) break;  // wholly beyond the rows: masked
    const std::int32_t r1 = r0 + subtile_rows < grid.rows ? r0 + subtile_rows : grid.rows;
    TileClass c = classify(bounds, r0, r1);
    if (ragged && c == TileClass::unmasked) c = TileClass::partial;  // the columns beyond the end must be cut
    word |= static_cast<std::uint32_t>(c) << (2 * s);
  }
  return word;
}

/// Every subtile that has rows, partial: what a list that does not fit says of all its blocks.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t all_partial(const TileGrid& grid, std::int32_t row_tile) {
  std::uint32_t word = 0;
  for (std::int32_t s = 0; s < grid.subtiles(); ++s) {
    if (row_tile * grid.block_m + s * subtile_rows >= grid.rows) break;
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

/// Right shift that brings every possible list cost below 2^31 (a sort key keeps one bit for the kind of list).
[[nodiscard]] constexpr std::int32_t cost_shift(const TileGrid& grid, const TileCosts& costs) {
  const std::int64_t longest = grid.row_tiles > grid.column_blocks ? grid.row_tiles : grid.column_blocks;
  std::int64_t most = longest * (costs.partial > costs.unmasked ? costs.partial : costs.unmasked);
  std::int32_t shift = 0;
  for (; most >= (std::int64_t{1} << 31); most >>= 1) ++shift;
  return shift;
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
  const std::int32_t low = row_tile * grid.block_m + accumulator_row(t, 0);
  const std::int32_t high = low + (accumulator_row(t, 2) - accumulator_row(t, 0));
  constexpr std::uint32_t low_bits = 0x00ff00ffU;  // elements of the upper of the thread's two rows
  const std::uint32_t has_rows = (low < grid.rows ? low_bits : 0U) | (high < grid.rows ? low_bits << 8 : 0U);
  std::uint32_t words[2] = {0, 0};
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (std::int32_t pair = 0; pair < max_block_n / 8; ++pair) {  // 4 elements: two columns of two rows
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
