#include "sm90/tile_map/build.hpp"

#include <cub/device/device_radix_sort.cuh>

#include "sm90/cuda_check.hpp"
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

void queue_sort(const BuildArrays& a, const SortArrays& sort, cudaStream_t stream) {
  std::size_t bytes = sort.temporary_bytes;
  check_cuda(cub::DeviceRadixSort::SortPairsDescending(sort.temporary, bytes, a.keys, sort.keys, a.list_numbers,
                                                       sort.order, list_count(a), 0, key_bits, stream),
             "cub::DeviceRadixSort of the cost order");
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
}

void load_sort(const BuildArrays& a, const SortArrays& sort) {
  const std::int64_t lists = list_count(a);
  if (lists <= most_ranked_lists) return;
  const std::size_t bytes = static_cast<std::size_t>(lists) * 4;
  check_cuda(cudaMemsetAsync(a.keys, 0, bytes, nullptr), "cudaMemsetAsync of a tile map");
  check_cuda(cudaMemsetAsync(a.list_numbers, 0, bytes, nullptr), "cudaMemsetAsync of a tile map");
  queue_sort(a, sort, nullptr);
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
  if (ranked.order == nullptr) queue_sort(a, sort, stream);
}

}  // namespace flashmask::sm90::tile_map
