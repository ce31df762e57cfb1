// What the builder's kernels read and write, and the two calls that queue them; the host side knows no kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sm90/tile_map/device_map.hpp"
#include "sm90/tile_map/rule.hpp"

namespace flashmask::sm90::tile_map {

/// What a list asks for and adds to the counts.
struct ListSize {
  std::uint32_t runs, visited, partial_blocks, partial_subtiles, unmasked_subtiles;
};

/// Where a list was put. `bitmap` is the index of its first bitmap, -1 if its bitmaps do not fit.
struct ListPlace {
  std::int32_t begin, count, bitmap;
  std::int32_t bitmap_range;  ///< first index reserved for it, whether it uses them or not
  bool fits;
};

/// Everything the kernels read and write; passed by value.
struct BuildArrays {
  TileGrid grid;
  MapCapacity capacity;
  TileCosts costs;
  std::int32_t matrices;
  OrderRule order_rule;
  DeviceVectors raw;
  std::int32_t *lts, *lte, *uts, *ute;
  BlockBounds* bounds;        ///< [matrix][padded unit]; a unit is a column block unless the form says otherwise
  BlockBounds* group_bounds;  ///< [matrix][group of 32 units]
  ListSize* sizes;
  ListPlace* places;
  std::uint32_t* keys;
  std::int32_t* list_numbers;
  Run *row_runs, *column_runs;
  std::int32_t *row_begin, *row_count, *column_begin, *column_count;
  std::int32_t* bitmap_list;   ///< row list of each bitmap, -1 for none
  std::int32_t* bitmap_block;  ///< unit at which the block of each bitmap starts
  std::int32_t* bitmaps_used;  ///< one number
  std::uint64_t* bitmaps;
  std::int32_t* order;  ///< row lists, then column lists, each heaviest first; null: sorted by another kernel
  MapCounts* counts;    ///< [2]: of the row lists, of the column lists

  [[nodiscard]] FLASHMASK_HOST_DEVICE std::int32_t unit_groups() const { return (grid.padded_units() + 31) / 32; }
  [[nodiscard]] FLASHMASK_HOST_DEVICE std::int32_t row_lists() const { return matrices * grid.row_tiles; }
  [[nodiscard]] FLASHMASK_HOST_DEVICE std::int32_t column_lists() const { return matrices * grid.column_blocks; }
};

/// What the cost order is sorted with: keys and list numbers of BuildArrays in, `order` out.
struct SortArrays {
  std::uint32_t* keys;
  std::int32_t* order;  ///< row lists, then column lists, each heaviest first
  void* temporary;
  std::size_t temporary_bytes;
};

/// Loads every kernel of a build (sm90/load_kernels.hpp).
void load_kernels();

/// Bytes that sorting `lists` keys takes.
std::size_t sort_bytes(std::int64_t lists);

/// Queues every kernel of one build on `stream`.
void queue_build(const BuildArrays& arrays, const SortArrays& sort, CUstream_st* stream);

}  // namespace flashmask::sm90::tile_map
