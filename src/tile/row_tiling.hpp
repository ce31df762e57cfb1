// How the row axis is cut into tiles: blocks of `block` rows that start anew at every chunk and are clipped to it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace flashmask::tile {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);  // a + b may be beyond int64
}

/// Tiles of [0, rows). A tile map is the case of one chunk; planning tiles restart at each chunk's first row.
class RowTiling {
 public:
  RowTiling(std::int64_t rows, std::int64_t block) : RowTiling(rows, block, std::max<std::int64_t>(rows, 1)) {}
  RowTiling(std::int64_t rows, std::int64_t block, std::int64_t chunk)
      : rows_(rows),
        block_(block),
        chunk_(chunk),
        tiles_per_chunk_(ceil_div(chunk, block)),
        count_(rows / chunk * tiles_per_chunk_ + ceil_div(rows % chunk, block)) {}

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// First row of a tile.
  [[nodiscard]] std::int64_t begin(std::int64_t tile) const {
    return tile / tiles_per_chunk_ * chunk_ + tile % tiles_per_chunk_ * block_;
  }
  /// One past the last row of a tile, clamped to its chunk and to the rows.
  [[nodiscard]] std::int64_t end(std::int64_t tile) const {
    const std::int64_t chunk_end = (tile / tiles_per_chunk_ + 1) * chunk_;
    return std::min({begin(tile) + block_, chunk_end, rows_});
  }
  /// The tile that holds a row of [0, rows).
  [[nodiscard]] std::int64_t tile_of(std::int64_t row) const {
    return row / chunk_ * tiles_per_chunk_ + row % chunk_ / block_;
  }
  [[nodiscard]] std::int64_t chunk_of(std::int64_t tile) const { return tile / tiles_per_chunk_; }

 private:
  std::int64_t rows_, block_, chunk_, tiles_per_chunk_, count_;
};

}  // namespace flashmask::tile
