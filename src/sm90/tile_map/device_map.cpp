#include "sm90/tile_map/device_map.hpp"

#include "core/check.hpp"
#include "sm90/cuda_check.hpp"
#include "sm90/tile_map/build.hpp"
#include "sm90/tile_map/host_map.hpp"

namespace flashmask::sm90 {
namespace {

using tile_map::BuildArrays;
using tile_map::SortArrays;

constexpr std::size_t alignment = 256;

/// Hands out consecutive aligned pieces of one allocation; with a null base it only measures.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}
  template <typename T>
  T* take(std::int64_t count) {
    const std::size_t at = size_;
    size_ += (static_cast<std::size_t>(count) * sizeof(T) + alignment - 1) / alignment * alignment;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  char* base_;
  std::size_t size_ = 0;
};

/// Lays every array out in `base`; returns the bytes taken.
std::size_t lay_out(void* base, const TileGrid& grid, std::int64_t matrices, const MapCapacity& capacity,
                    std::size_t sort_bytes, BuildArrays& a, SortArrays& sort) {
  Arena arena(base);
  const std::int64_t row_lists = matrices * grid.row_tiles, column_lists = matrices * grid.column_blocks;
  const std::int64_t lists = row_lists + column_lists, padded = matrices * grid.padded_columns;
  a.lts = arena.take<std::int32_t>(padded), a.lte = arena.take<std::int32_t>(padded);
  a.uts = arena.take<std::int32_t>(padded), a.ute = arena.take<std::int32_t>(padded);
  a.row_runs = arena.take<Run>(capacity.row_runs + row_lists);
  a.column_runs = arena.take<Run>(capacity.column_runs + column_lists);
  a.row_begin = arena.take<std::int32_t>(row_lists), a.row_count = arena.take<std::int32_t>(row_lists);
  a.column_begin = arena.take<std::int32_t>(column_lists), a.column_count = arena.take<std::int32_t>(column_lists);
  a.bitmaps = arena.take<std::uint64_t>(std::int64_t{capacity.bitmaps} * subtile_threads * grid.subtiles());
  a.bitmap_list = arena.take<std::int32_t>(capacity.bitmaps),
  a.bitmap_block = arena.take<std::int32_t>(capacity.bitmaps);
  a.bitmaps_used = arena.take<std::int32_t>(1);
  a.counts = arena.take<MapCounts>(2);
  a.bounds = arena.take<BlockBounds>(matrices * grid.padded_units());
  a.group_bounds = arena.take<BlockBounds>(matrices * ((grid.padded_units() + 31) / 32));
  a.sizes = arena.take<tile_map::ListSize>(lists), a.places = arena.take<tile_map::ListPlace>(lists);
  a.keys = arena.take<std::uint32_t>(lists), a.list_numbers = arena.take<std::int32_t>(lists);
  sort.keys = arena.take<std::uint32_t>(lists), sort.order = arena.take<std::int32_t>(lists);
  sort.temporary_bytes = sort_bytes;
  sort.temporary = arena.take<char>(static_cast<std::int64_t>(sort_bytes));
  return arena.size();
}

std::int64_t list_count(const MaskShape& mask, const TileGrid& grid) {
  return mask.batch * mask.heads * (std::int64_t{grid.row_tiles} + grid.column_blocks);
}

TileGrid grid_of(const MaskShape& mask, TileShape tile, const MapForm& form) {
  check_map_shape(mask, tile, form);
  return tile_grid(static_cast<std::int32_t>(mask.rows), static_cast<std::int32_t>(mask.columns), tile, form);
}

void check_capacity(const MapCapacity& c) {
  constexpr std::int32_t most = 1 << 30;  // an index past the capacity, the fallback run of a list, stays an int32
  const auto legal = [](std::int32_t n) { return n >= 0 && n <= most; };
  core::check(legal(c.row_runs) && legal(c.column_runs) && legal(c.bitmaps),
              "tile map capacities must be from 0 to {}, got row_runs {}, column_runs {}, bitmaps {}", most, c.row_runs,
              c.column_runs, c.bitmaps);
}

}  // namespace

std::size_t DeviceTileMap::bytes(const MaskShape& mask, TileShape tile, const MapCapacity& capacity,
                                 const MapForm& form) {
  const TileGrid grid = grid_of(mask, tile, form);
  check_capacity(capacity);
  BuildArrays arrays{};
  SortArrays sort{};
  return lay_out(nullptr, grid, mask.batch * mask.heads, capacity, tile_map::sort_bytes(list_count(mask, grid)), arrays,
                 sort);
}

DeviceTileMap::DeviceTileMap(const MaskShape& mask, TileShape tile, const Options& options)
    : shape_(mask),
      grid_(grid_of(mask, tile, options.form)),
      capacity_(usable_capacity(
          options.capacity.value_or(default_capacity(mask, tile, default_bitmap_bytes, options.form)), tile)),
      costs_(options.costs),
      section_(options.section) {
  check_capacity(capacity_);
  core::check(costs_.partial > 0 && costs_.unmasked > 0 && costs_.partial < (1 << 30) && costs_.unmasked < (1 << 30),
              "tile costs must be in (0, 2^30), got partial {}, unmasked {}", costs_.partial, costs_.unmasked);
  core::check(reinterpret_cast<std::uintptr_t>(options.memory) % alignment == 0,
              "memory of a tile map must be aligned to {} bytes, got {}", alignment, options.memory);
  sort_bytes_ = tile_map::sort_bytes(list_count(mask, grid_));
  bytes_ = bytes(mask, tile, capacity_, options.form);
  memory_ = options.memory;
  if (memory_ == nullptr && bytes_ > 0) {
    check_cuda(cudaMalloc(&memory_, bytes_), "cudaMalloc of a tile map");
    owned_.reset(memory_);
  }
  BuildArrays a{};
  SortArrays sort{};
  lay_out(memory_, grid_, mask.batch * mask.heads, capacity_, sort_bytes_, a, sort);
  view_ = {grid_.rows,
           grid_.columns,
           static_cast<std::int32_t>(mask.batch),
           static_cast<std::int32_t>(mask.heads),
           grid_.block_m,
           grid_.block_n,
           grid_.row_tiles,
           grid_.column_blocks,
           a.row_runs,
           a.row_begin,
           a.row_count,
           a.column_runs,
           a.column_begin,
           a.column_count,
           sort.order,
           sort.order + mask.batch * mask.heads * grid_.row_tiles,
           a.lts,
           a.lte,
           a.uts,
           a.ute,
           grid_.padded_columns,
           a.bitmaps,
           1 << grid_.packed_shift};
}

void DeviceTileMap::FreeDevice::operator()(void* memory) const {
  cudaFree(memory);
}

void DeviceTileMap::refill(const DeviceVectors& vectors, CUstream_st* stream) {
  BuildArrays a{};
  SortArrays sort{};
  const std::int64_t matrices = shape_.batch * shape_.heads;
  lay_out(memory_, grid_, matrices, capacity_, sort_bytes_, a, sort);
  a.grid = grid_, a.capacity = capacity_, a.costs = costs_, a.matrices = static_cast<std::int32_t>(matrices);
  a.order_rule = order_rule(grid_, costs_, a.matrices, section_), a.raw = vectors;
  if (list_count(shape_, grid_) > 0) queue_build(a, sort, stream);
}

MapCounts DeviceTileMap::read_counts(CUstream_st* stream) const {
  if (list_count(shape_, grid_) == 0) return {};
  BuildArrays a{};
  SortArrays sort{};
  lay_out(memory_, grid_, shape_.batch * shape_.heads, capacity_, sort_bytes_, a, sort);
  MapCounts counts[2];
  check_cuda(cudaMemcpyAsync(counts, a.counts, sizeof(counts), cudaMemcpyDeviceToHost, stream),
             "cudaMemcpyAsync of the tile map's counts");
  check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize for the tile map's counts");
  return counts[0] + counts[1];
}

}  // namespace flashmask::sm90
