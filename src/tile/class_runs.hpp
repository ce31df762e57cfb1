// Tile classes down one column block as runs, in time independent of the number of row tiles.
//
// The rule compares a tile's first and last row with the eight extrema of the column block and with nothing else. Row
// tiles that no extremum cuts therefore share one class between two neighbouring extrema: it is enough to classify the
// at most eight tiles that an extremum cuts, and one tile of every stretch between them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashmask/tile.hpp"
#include "tile/row_tiling.hpp"

namespace flashmask::tile {

/// The classes of all row tiles against the columns behind `bounds`, appended to `runs` in ascending order; neighbours
/// of one class are merged. Masked runs are included. First and count are tile numbers of `tiling`.
void append_class_runs(const BlockBounds& bounds, const RowTiling& tiling, std::vector<TileRun>& runs);

/// One (batch, mask head) of a mask, read column by column in canonical form.
class CanonicalColumns {
 public:
  CanonicalColumns(const ColumnMask& mask, std::int64_t batch, std::int64_t head);
  [[nodiscard]] std::int64_t size() const { return columns_; }
  [[nodiscard]] HiddenRows operator[](std::int64_t column) const {
    const HiddenRows raw = view_.at(first_ + column);
    return canonical_ ? raw : canonical(raw, rows_);
  }

 private:
  MaskView view_;
  std::int64_t first_, columns_;
  std::int32_t rows_;
  bool canonical_;
};

/// Writes the classes of a column block [begin, end) by one of the two rules. Keeps its scratch memory between calls.
class ColumnBlockClassifier {
 public:
  ColumnBlockClassifier(const RowTiling& tiling, TileRule rule);

  /// Runs of classes down the rows (masked ones included, ascending, neighbours differ); valid until the next call.
  std::span<const TileRun> classify(const CanonicalColumns& columns, std::int64_t begin, std::int64_t end);

 private:
  void minmax(const CanonicalColumns& columns, std::int64_t begin, std::int64_t end);
  void exact(const CanonicalColumns& columns, std::int64_t begin, std::int64_t end);

  RowTiling tiling_;
  TileRule rule_;
  std::vector<TileRun> runs_, column_runs_;
  std::vector<std::int64_t> masked_steps_, unmasked_steps_;  // difference arrays over row tiles (exact rule)
};

}  // namespace flashmask::tile
