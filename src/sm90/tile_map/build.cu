#include "sm90/tile_map/build.hpp"

#include <cub/device/device_radix_sort.cuh>

#include "sm90/cuda_check.hpp"
#include "sm90/device/memory.hpp"
#include "sm90/load_kernels.hpp"
#include "sm90/tile_map/kernels.cuh"

namespace flashmask::sm90::tile_map {
namespace {

constexpr std::int32_t fill_grid = 1056;  // 8 CTAs for each of 132 SMs; the kernel strides, so any GPU is served
constexpr int key_bits = 32;
/// Up to here the lists rank themselves: a radix sort of one tile takes 11 us, reading 4096 keys a warp about 2.
constexpr std::int64_t most_ranked_lists = 4096;

unsigned blocks_for(std::int64_t warps) {
  constexpr std::int64_t per_block = list_threads / warp_size;
  return static_cast<unsigned>((warps + per_block - 1) / per_block);
}

std::int64_t list_count(const BuildArrays& a) {
  return std::int64_t{a.row_lists()} + a.column_lists();
}

void queue_sort(const std::uint32_t* keys, const std::int32_t* list_numbers, std::int64_t lists, const SortArrays& sort,
                cudaStream_t stream) {
  std::size_t bytes = sort.temporary_bytes;
  check_cuda(cub::DeviceRadixSort::SortPairsDescending(sort.temporary, bytes, keys, sort.keys, list_numbers, sort.order,
                                                       lists, 0, key_bits, stream),
             "cub::DeviceRadixSort of the cost order");
}

/// Loads CUB's kernels, which have no public names: sorts zeros of its own, as few as are ever sorted and as many as
/// take its other kernels.
void load_sort() {
  constexpr std::int64_t few = most_ranked_lists + 1, many = 16 * most_ranked_lists;
  const DeviceMemory arrays(4 * many * sizeof(std::int32_t)), temporary(sort_bytes(many));
  const Stream stream;
  check_cuda(cudaMemsetAsync(arrays.data(), 0, arrays.bytes(), stream.get()), "cudaMemsetAsync of keys to sort");
  auto* const keys = static_cast<std::uint32_t*>(arrays.data());
  auto* const numbers = reinterpret_cast<std::int32_t*>(keys + 2 * many);
  const SortArrays sort{keys + many, numbers + many, temporary.data(), temporary.bytes()};
  for (const std::int64_t lists : {few, many}) queue_sort(keys, numbers, lists, sort, stream.get());
  stream.synchronise();
}

}  // namespace

std::size_t sort_bytes(std::int64_t lists) {
  if (lists == 0) return 0;
  std::size_t bytes = 0;
  check_cuda(cub::DeviceRadixSort::SortPairsDescending(
                 nullptr, bytes, static_cast<const std::uint32_t*>(nullptr), static_cast<std::uint32_t*>(nullptr),
                 static_cast<const std::int32_t*>(nullptr), static_cast<std::int32_t*>(nullptr), lists, 0, key_bits),
             "cub::DeviceRadixSort (workspace query for the cost order)");
  return bytes;
}

void load_kernels() {
  const auto load = [](auto*... kernel) {
    for (const cudaError_t status : {load_kernel(kernel)...})
      check_cuda(status, "cudaFuncGetAttributes of the tile map");
  };
  load(prepare, measure_lists<true>, measure_lists<false>, place_lists, write_lists<true>, write_lists<false>,
       fill_bitmaps);
  load_sort();
}

void queue_build(const BuildArrays& a, const SortArrays& sort, CUstream_st* stream) {
  const std::int64_t lists = list_count(a);
  if (a.column_lists() > 0) {
    prepare<<<static_cast<unsigned>(a.matrices * a.unit_groups()), group_threads, 0, stream>>>(a);
  }
  const bool plain = a.grid.packed_shift == 0 && a.grid.column_units == 1 && a.grid.rule == TileRule::minmax;
  (plain ? measure_lists<true> : measure_lists<false>)<<<blocks_for(lists), list_threads, 0, stream>>>(a);
  place_lists<<<2, scan_threads, 0, stream>>>(a);
  BuildArrays ranked = a;
  ranked.order = lists <= most_ranked_lists ? sort.order : nullptr;
  (plain ? write_lists<true> : write_lists<false>)<<<blocks_for(lists), list_threads, 0, stream>>>(ranked);
  if (a.capacity.bitmaps > 0 && a.row_lists() > 0) {
    const auto blocks = static_cast<unsigned>(a.capacity.bitmaps < fill_grid ? a.capacity.bitmaps : fill_grid);
    fill_bitmaps<<<blocks, static_cast<unsigned>(subtile_threads * a.grid.subtiles()), 0, stream>>>(a);
  }
  check_cuda(cudaGetLastError(), "launch of the tile map kernels");
  if (ranked.order == nullptr) queue_sort(a.keys, a.list_numbers, lists, sort, stream);
}

}  // namespace flashmask::sm90::tile_map
