// THE classification rule (one definition for host and device), and the tile map built from it (docs/tile.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashmask/host_device.hpp"
#include "flashmask/mask.hpp"

namespace flashmask {

namespace tile {
class CanonicalColumns;
class ColumnBlockClassifier;
}  // namespace tile

/// masked: no cell visible, skip. partial: apply the intervals. unmasked: every cell visible, no mask code.
enum class TileClass : std::uint8_t { masked = 0, partial = 1, unmasked = 2 };

/// How a class is decided: `minmax` from per-block extrema (what kernels can afford), `exact` from every column.
enum class TileRule : std::uint8_t { minmax = 0, exact = 1 };

/// block_m query rows x block_n key columns.
struct TileShape {
  std::int32_t block_m = 128;
  std::int32_t block_n = 128;
  friend bool operator==(const TileShape&, const TileShape&) = default;
};

/// Minima and maxima of the four vectors over the columns of one block (columns beyond the end enter none of them).
struct BlockBounds {
  std::int32_t lts_min, lts_max, lte_min, lte_max;
  std::int32_t uts_min, uts_max, ute_min, ute_max;

  /// Neutral element of `include`.
  [[nodiscard]] FLASHMASK_HOST_DEVICE static constexpr BlockBounds none() {
    constexpr std::int32_t low = -2147483647 - 1;
    constexpr std::int32_t high = 2147483647;
    return {high, low, high, low, high, low, high, low};
  }
  FLASHMASK_HOST_DEVICE constexpr void include(const HiddenRows& c) {
    lts_min = c.lts < lts_min ? c.lts : lts_min;
    lts_max = c.lts > lts_max ? c.lts : lts_max;
    lte_min = c.lte < lte_min ? c.lte : lte_min;
    lte_max = c.lte > lte_max ? c.lte : lte_max;
    uts_min = c.uts < uts_min ? c.uts : uts_min;
    uts_max = c.uts > uts_max ? c.uts : uts_max;
    ute_min = c.ute < ute_min ? c.ute : ute_min;
    ute_max = c.ute > ute_max ? c.ute : ute_max;
  }
  /// The bounds of both blocks' columns together.
  FLASHMASK_HOST_DEVICE constexpr void include(const BlockBounds& b) {
    lts_min = b.lts_min < lts_min ? b.lts_min : lts_min;
    lts_max = b.lts_max > lts_max ? b.lts_max : lts_max;
    lte_min = b.lte_min < lte_min ? b.lte_min : lte_min;
    lte_max = b.lte_max > lte_max ? b.lte_max : lte_max;
    uts_min = b.uts_min < uts_min ? b.uts_min : uts_min;
    uts_max = b.uts_max > uts_max ? b.uts_max : uts_max;
    ute_min = b.ute_min < ute_min ? b.ute_min : ute_min;
    ute_max = b.ute_max > ute_max ? b.ute_max : ute_max;
  }
};

/// Class of the tile [r0, r1) x (the columns behind `b`). r1 must already be clamped to the number of rows.
/// Sound for any vectors: a masked tile has no visible cell, an unmasked one no hidden cell.
FLASHMASK_HOST_DEVICE constexpr TileClass classify(const BlockBounds& b, std::int32_t r0, std::int32_t r1) {
  const bool covers_l = r0 >= b.lts_max && r1 <= b.lte_min;
  const bool covers_u = r0 >= b.uts_max && r1 <= b.ute_min;
  if (covers_l || covers_u) return TileClass::masked;
  const bool touch_l = r0 < b.lte_max && r1 > b.lts_min;
  const bool touch_u = r0 < b.ute_max && r1 > b.uts_min;
  return touch_l || touch_u ? TileClass::partial : TileClass::unmasked;
}

/// `count` consecutive blocks from `first` that share one class (never masked: masked blocks are the gaps between
/// runs).
struct TileRun {
  std::int32_t first = 0;
  std::int32_t count = 0;
  TileClass tile_class = TileClass::partial;
  friend bool operator==(const TileRun&, const TileRun&) = default;
};

struct TileCounts {
  std::int64_t masked = 0;
  std::int64_t partial = 0;
  std::int64_t unmasked = 0;
  [[nodiscard]] std::int64_t total() const { return masked + partial + unmasked; }
  friend bool operator==(const TileCounts&, const TileCounts&) = default;
};

/// Integer cost of one tile per class, in thousandths of an unmasked tile; masked tiles cost nothing.
struct TileCosts {
  std::int64_t partial = 1080;
  std::int64_t unmasked = 1000;
  friend bool operator==(const TileCosts&, const TileCosts&) = default;
};

/// Names one row block of one (batch, mask head).
struct RowBlock {
  std::int32_t batch = 0;
  std::int32_t head = 0;
  std::int32_t block = 0;
  friend bool operator==(const RowBlock&, const RowBlock&) = default;
};

/// Classification of a whole mask for one tile shape: per (batch, mask head, row block) the runs of visible column
/// blocks, ascending; the transpose; exact counts; row blocks in descending cost. Depends on the mask alone, so one map
/// serves every query head, layer and pass. Immutable.
class TileMap {
 public:
  TileMap() = default;

  /// Builds the map of `mask` (any vectors; canonical form is taken first). Throws invalid_argument for a tile shape
  /// that is not positive. O(columns + row blocks x column blocks) time under either rule.
  static TileMap build(const ColumnMask& mask, TileShape shape, TileRule rule = TileRule::minmax);

  [[nodiscard]] const MaskShape& mask_shape() const { return mask_shape_; }
  [[nodiscard]] TileShape tile_shape() const { return shape_; }
  [[nodiscard]] TileRule rule() const { return rule_; }
  [[nodiscard]] std::int64_t row_blocks() const { return row_blocks_; }
  [[nodiscard]] std::int64_t column_blocks() const { return column_blocks_; }

  /// Runs of visible column blocks of one row block, ascending.
  [[nodiscard]] std::span<const TileRun> row(std::int64_t batch, std::int64_t head, std::int64_t row_block) const;
  /// The transpose: runs of row blocks that see one column block, ascending.
  [[nodiscard]] std::span<const TileRun> column(std::int64_t batch, std::int64_t head, std::int64_t column_block) const;
  /// Class of one tile. O(log runs).
  [[nodiscard]] TileClass at(std::int64_t batch, std::int64_t head, std::int64_t row_block,
                             std::int64_t column_block) const;

  /// Over batch and mask heads.
  [[nodiscard]] TileCounts counts() const;
  [[nodiscard]] TileCounts counts(std::int64_t batch, std::int64_t head) const;
  /// Cost of one row block. 64-bit exact.
  [[nodiscard]] std::int64_t row_cost(std::int64_t batch, std::int64_t head, std::int64_t row_block,
                                      const TileCosts& costs = {}) const;
  /// Every row block, heaviest first (default costs), ties by (batch, head, block).
  [[nodiscard]] std::span<const RowBlock> heaviest_first() const { return order_; }

 private:
  void append_columns(const tile::CanonicalColumns& columns, tile::ColumnBlockClassifier& classifier);
  void append_rows();
  void sort_heaviest_first();

  MaskShape mask_shape_;
  TileShape shape_;
  TileRule rule_ = TileRule::minmax;
  std::int64_t row_blocks_ = 0;
  std::int64_t column_blocks_ = 0;
  std::vector<std::int64_t> row_offsets_, column_offsets_;  // CSR over (batch, head, block)
  std::vector<TileRun> row_runs_, column_runs_;
  std::vector<TileCounts> counts_;  // per (batch, head)
  std::vector<RowBlock> order_;
};

/// Tile counts of a whole mask over batch and mask heads without building a map; equals TileMap::build(...).counts().
TileCounts tile_counts(const ColumnMask& mask, TileShape shape = {}, TileRule rule = TileRule::minmax);

/// Visible share of all cells, exact (1 for an empty mask).
double element_density(const ColumnMask& mask);
/// Share of tiles that are not masked under the minmax rule on canonical vectors; the published TFLOP/s convention
/// uses 128 x 128 whatever the kernel's tile.
double tile_density(const ColumnMask& mask, TileShape shape = {});

/// What one unit of planning load is.
enum class LoadUnit : std::uint8_t { cells = 0, tiles = 1 };

/// How chunk_loads counts. Shape, costs and rule are read for `tiles` alone.
struct LoadOptions {
  LoadUnit unit = LoadUnit::tiles;
  TileShape tile_shape{};
  TileCosts costs{};
  TileRule rule = TileRule::minmax;
};

/// Load of every chunk of `chunk` consecutive rows (the last may be ragged), summed over batch and mask heads: visible
/// cells, or tile costs where planning tiles start at each chunk's first row and are clipped to it. Exact int64; a load
/// beyond that throws invalid_argument, as do chunk < 1, a tile shape that is not positive and negative costs.
/// O(columns + rows) time per mask head, so a million tokens take milliseconds.
std::vector<std::int64_t> chunk_loads(const ColumnMask& mask, std::int64_t chunk, const LoadOptions& options = {});

}  // namespace flashmask
