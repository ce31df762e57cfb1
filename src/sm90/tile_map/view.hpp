// What the kernels read: the tile map of one mask as plain arrays in device memory (docs/tile_map.md).
//
// A row tile is block_m = 64 * subtiles mask rows (packed: 64 * subtiles / packed_heads); each 64-row subtile belongs
// to one consumer warpgroup and has its own class, so a tall tile does not coarsen the skipping. A column block is
// block_n key columns. List l of (batch, mask head, row tile) is l = (batch * heads + head) * row_tiles + tile, and
// likewise for column blocks. MapForm (rule.hpp) says how a map may depart from this.
#pragma once

#include <cstdint>

#include "flashmask/host_device.hpp"
#include "flashmask/tile.hpp"
#include "sm90/layout/fragment.hpp"

namespace flashmask::sm90 {

/// `count` consecutive column blocks (row lists) or row tiles (column lists) from `first` that share one class word.
struct alignas(16) Run {
  std::int32_t first;  ///< in row lists of a packed map: in units of 16 columns, and blocks are block_n columns apart
  std::int32_t count;
  /// 2 bits (TileClass) per 64-row subtile, subtile s in bits [2s, 2s + 2). Bit 31: one bitmap for all blocks of the
  /// run.
  std::uint32_t classes;
  /// Index of the first block's bitmap (block i of the run uses bitmap + i, or bitmap if shared); -1: use the
  /// intervals. Bitmaps belong to row lists; in column lists it is always -1.
  std::int32_t bitmap;

  friend bool operator==(const Run&, const Run&) = default;
};

inline constexpr std::uint32_t shared_bitmap_bit = 1U << 31;
inline constexpr std::int32_t subtile_rows = 64;
/// Threads of the warpgroup that owns a subtile.
inline constexpr std::int32_t subtile_threads = 128;
/// 2 bits a subtile below the shared-bitmap bit.
inline constexpr std::int32_t max_subtiles = 8;
inline constexpr std::int32_t max_block_n = 256;
/// Wider blocks have no bitmaps: an accumulator of 64 x block_n has block_n / 2 elements a thread, a bitmap word 64
/// bits.
inline constexpr std::int32_t max_bitmap_columns = 128;

[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr TileClass subtile_class(std::uint32_t classes, std::int32_t subtile) {
  return static_cast<TileClass>((classes >> (2 * subtile)) & 3U);
}

/// Whether some subtile of the class word is partial (class 1), i.e. whether mask code runs at all.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr bool has_partial(std::uint32_t classes) {
  return ((classes & ~(classes >> 1)) & 0x15555555U) != 0;
}

/// Bitmap of the i-th block of a run, -1 for none.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t run_bitmap(const Run& run, std::int32_t i) {
  if (run.bitmap < 0) return -1;
  return (run.classes & shared_bitmap_bit) != 0 ? run.bitmap : run.bitmap + i;
}

/// Row inside its row tile of element i of thread t's accumulator; t counts over the tile's 128 * subtiles threads.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t accumulator_row(std::int32_t t, std::int32_t i) {
  return t / subtile_threads * subtile_rows +
         static_cast<std::int32_t>(
             layout::accumulator_row(static_cast<std::uint32_t>(t % subtile_threads), static_cast<std::uint32_t>(i)));
}

/// Column inside its column block of element i of thread t's accumulator.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t accumulator_column(std::int32_t t, std::int32_t i) {
  return static_cast<std::int32_t>(
      layout::accumulator_column(static_cast<std::uint32_t>(t % subtile_threads), static_cast<std::uint32_t>(i)));
}

/// Bit of a bitmap word that speaks of accumulator element i = 4 * group + 2 * (row + 8?) + (odd column?): each of the
/// four (row, parity) combinations has a byte of eight column groups, so that a kernel makes the word of a strip of
/// rows from column masks with one shift, mask and add a group.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t bitmap_bit(std::int32_t i) {
  return i / 32 * 32 + (2 * (i & 1) + (i >> 1 & 1)) * 8 + i / 4 % 8;
}

/// Passed to kernels by value; every pointer is device memory owned by a DeviceTileMap (in tests: host memory).
///
/// Kernels need no ragged test besides these lists: rows beyond the end and columns beyond the end are hidden; a ragged
/// last column block is never unmasked (its subtiles are partial unless masked); a subtile wholly beyond the rows is
/// masked. A column block stands in a row tile's list iff some subtile is not masked.
struct TileMapView {
  std::int32_t rows, columns, batch, heads;  ///< of the mask
  std::int32_t block_m, block_n, row_tiles, column_blocks;
  /// Per (batch, head, row tile): `row_run_count` runs from `row_run_begin`, ascending by column block.
  const Run* row_runs;
  const std::int32_t* row_run_begin;
  const std::int32_t* row_run_count;
  /// Per (batch, head, column block): runs of row tiles, ascending; what the backward walks.
  const Run* column_runs;
  const std::int32_t* column_run_begin;
  const std::int32_t* column_run_count;
  /// All row tiles (column blocks) of all (batch, head), heaviest first: flat list indices.
  const std::int32_t* row_order;
  const std::int32_t* column_order;
  /// Canonical vectors, [batch][head][padded_columns]; columns beyond the end hide every row: (rows, 0, 0, rows).
  const std::int32_t *lts, *lte, *uts, *ute;
  std::int32_t padded_columns;  ///< a multiple of block_n and of 4 (16-byte aligned rows for bulk copies)
  /// [bitmap][128 * subtiles]: bit bitmap_bit(i) of thread t's word: element i of its accumulator is visible.
  const std::uint64_t* bitmaps;
  std::int32_t packed_heads;  ///< query heads that share a row tile (MapForm)
};

}  // namespace flashmask::sm90
