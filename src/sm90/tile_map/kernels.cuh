// The builder's kernels. A list is a row list (one row tile, column blocks ascending) or a column list (one column
// block, row tiles ascending); lists of all matrices (batch x mask heads) are numbered rows first, then columns. One
// warp owns a list, one lane a block of it.
#pragma once

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "sm90/tile_map/build.hpp"
#include "sm90/tile_map/list_walk.cuh"

namespace flashmask::sm90::tile_map {

constexpr int list_threads = 128;
constexpr int scan_threads = 1024;
constexpr int group_threads = warp_size * warp_size;

__device__ inline BlockBounds reduce_bounds(const BlockBounds& b) {
  constexpr unsigned all = 0xffffffffU;
  return {__reduce_min_sync(all, b.lts_min), __reduce_max_sync(all, b.lts_max), __reduce_min_sync(all, b.lte_min),
          __reduce_max_sync(all, b.lte_max), __reduce_min_sync(all, b.uts_min), __reduce_max_sync(all, b.uts_max),
          __reduce_min_sync(all, b.ute_min), __reduce_max_sync(all, b.ute_max)};
}

/// Canonical vectors of one unit, padded; returns this lane's part of the bounds over its real columns.
__device__ inline BlockBounds prepare_unit(const BuildArrays& a, std::int64_t matrix, std::int32_t unit) {
  const std::int32_t rows = a.grid.rows;
  BlockBounds b = BlockBounds::none();
  for (std::int32_t c = threadIdx.x % warp_size; c < a.grid.unit(); c += warp_size) {
    const std::int32_t column = unit * a.grid.unit() + c;
    HiddenRows hidden{rows, 0, 0, rows};
    if (column < a.grid.columns) {
      const std::int64_t from = matrix * a.grid.columns + column;
      const HiddenRows raw{a.raw.lts ? a.raw.lts[from] : rows, a.raw.lte ? a.raw.lte[from] : rows,
                           a.raw.uts ? a.raw.uts[from] : 0, a.raw.ute ? a.raw.ute[from] : 0};
      hidden = canonical(raw, rows);
      b.include(hidden);
    }
    const std::int64_t to = matrix * a.grid.padded_columns + column;
    a.lts[to] = hidden.lts, a.lte[to] = hidden.lte, a.uts[to] = hidden.uts, a.ute[to] = hidden.ute;
  }
  return b;
}

/// One CTA per group of 32 units, one warp per unit: canonical vectors, bounds of units and of the group.
__global__ void __launch_bounds__(group_threads) prepare(BuildArrays a) {
  __shared__ BlockBounds warps[warp_size];
  const std::int64_t matrix = blockIdx.x / a.unit_groups();
  const std::int32_t group = static_cast<std::int32_t>(blockIdx.x % a.unit_groups());
  const std::int32_t warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const std::int32_t unit = group * warp_size + warp;
  BlockBounds b = BlockBounds::none();
  if (unit < a.grid.padded_units()) {
    b = reduce_bounds(prepare_unit(a, matrix, unit));
    if (lane == 0) a.bounds[matrix * a.grid.padded_units() + unit] = b;
  }
  if (lane == 0) warps[warp] = b;
  __syncthreads();
  if (warp != 0) return;
  b = reduce_bounds(warps[lane]);
  if (lane == 0) a.group_bounds[blockIdx.x] = b;
}

/// One warp per list: how many runs and bitmaps it wants, its counts and its cost.
template <bool Plain>
__global__ void __launch_bounds__(list_threads, 8) measure_lists(BuildArrays a) {
  const std::int64_t list = (std::int64_t{blockIdx.x} * list_threads + threadIdx.x) / warp_size;
  if (list >= std::int64_t{a.row_lists()} + a.column_lists()) return;
  const auto l = static_cast<std::int32_t>(list);
  const TileGrid grid = grid_of<Plain>(a);
  const ListWalk walk(a, grid, l);
  const std::int32_t lane = threadIdx.x % warp_size;
  constexpr unsigned all = 0xffffffffU;
  ListSize size{};
  std::uint32_t unmasked_blocks = 0;
  const auto add = [&](std::uint32_t word, std::uint32_t blocks) {
    size.visited += word != 0 ? blocks : 0;
    size.partial_blocks += has_partial(word) ? blocks : 0;
    unmasked_blocks += word != 0 && !has_partial(word) ? blocks : 0;
    size.partial_subtiles += partial_subtiles(word) * blocks;
    size.unmasked_subtiles += unmasked_subtiles(word) * blocks;
  };
  walk_list(
      grid, walk,
      [&](std::int32_t, std::uint32_t word, std::uint32_t before) {
        size.runs += word != 0 && word != before;
        add(word, 1);
      },
      [&](std::int32_t, std::uint32_t word) { add(word, 1); });  // every lane adds its one block of the 32
  size = {__reduce_add_sync(all, size.runs), __reduce_add_sync(all, size.visited),
          __reduce_add_sync(all, size.partial_blocks), __reduce_add_sync(all, size.partial_subtiles),
          __reduce_add_sync(all, size.unmasked_subtiles)};
  unmasked_blocks = __reduce_add_sync(all, unmasked_blocks);
  if (lane != 0) return;
  const std::int64_t cost = size.partial_blocks * a.costs.partial + unmasked_blocks * a.costs.unmasked;
  a.sizes[l] = size;
  a.keys[l] = walk.is_row ? a.order_rule.row_key(cost, walk.matrix) : a.order_rule.column_key(cost);
  a.list_numbers[l] = walk.number;
}

struct Offsets {
  std::int64_t runs, bitmaps;
  __device__ Offsets operator+(const Offsets& o) const { return {runs + o.runs, bitmaps + o.bitmaps}; }
};

struct Plus {
  template <typename T>
  __device__ T operator()(const T& x, const T& y) const {
    return x + y;
  }
};

struct Greater {
  __device__ std::int32_t operator()(std::int32_t x, std::int32_t y) const { return x > y ? x : y; }
};

/// Places one list and adds what it got to `counts`; returns one past the last bitmap it uses.
__device__ inline std::int64_t place_list(const BuildArrays& a, bool is_row, std::int32_t number, const ListSize& size,
                                          const Offsets& at, MapCounts& counts) {
  const Placement p = place(at.runs, size.runs, is_row ? a.capacity.row_runs : a.capacity.column_runs, number);
  const bool bitmaps_fit = is_row && p.fits && at.bitmaps + size.partial_blocks <= a.capacity.bitmaps;
  const bool range_fits = is_row && at.bitmaps + size.partial_blocks <= a.capacity.bitmaps;
  ListPlace& out = a.places[(is_row ? 0 : a.row_lists()) + number];
  out = {p.begin, p.count, bitmaps_fit ? static_cast<std::int32_t>(at.bitmaps) : -1,
         range_fits ? static_cast<std::int32_t>(at.bitmaps) : -1, p.fits};
  (is_row ? a.row_begin : a.column_begin)[number] = p.begin;
  (is_row ? a.row_count : a.column_count)[number] = p.count;
  counts.runs += size.runs;
  counts.fallback_lists += !p.fits;
  if (!is_row) {
    counts.column_blocks_visited += size.visited;
    return 0;
  }
  counts.row_blocks_visited += size.visited, counts.partial_blocks += size.partial_blocks;
  counts.partial_subtiles += size.partial_subtiles, counts.unmasked_subtiles += size.unmasked_subtiles;
  counts.bitmap_blocks += bitmaps_fit ? size.partial_blocks : 0;
  return range_fits ? at.bitmaps + size.partial_blocks : 0;
}

/// CTA 0 places the row lists, CTA 1 the column lists: exclusive sums in list order, so equal masks give equal maps.
__global__ void __launch_bounds__(scan_threads) place_lists(BuildArrays a) {
  using Scan = cub::BlockScan<Offsets, scan_threads, cub::BLOCK_SCAN_WARP_SCANS>;
  using Sum = cub::BlockReduce<MapCounts, scan_threads, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
  using Most = cub::BlockReduce<std::int32_t, scan_threads>;
  __shared__ union {
    typename Scan::TempStorage scan;
    typename Sum::TempStorage sum;
    typename Most::TempStorage most;
  } shared;
  const bool is_row = blockIdx.x == 0;
  const std::int32_t lists = is_row ? a.row_lists() : a.column_lists();
  const ListSize* sizes = a.sizes + (is_row ? 0 : a.row_lists());
  Offsets base{0, 0};
  MapCounts counts;
  std::int32_t used = 0;
  for (std::int32_t start = 0; start < lists; start += scan_threads) {
    const std::int32_t number = start + static_cast<std::int32_t>(threadIdx.x);
    ListSize size{};
    if (number < lists) size = sizes[number];
    Offsets at{size.runs, size.partial_blocks}, total{0, 0};
    Scan(shared.scan).ExclusiveScan(at, at, Offsets{0, 0}, Plus{}, total);
    __syncthreads();
    if (number < lists) {
      const std::int64_t end = place_list(a, is_row, number, size, base + at, counts);
      used = end > used ? static_cast<std::int32_t>(end) : used;
    }
    base = base + total;
  }
  const MapCounts sum = Sum(shared.sum).Reduce(counts, Plus{});
  __syncthreads();
  const std::int32_t most = Most(shared.most).Reduce(used, Greater{});
  if (threadIdx.x != 0) return;
  a.counts[blockIdx.x] = sum;
  if (is_row) *a.bitmaps_used = most;
}

/// Puts a list at its place in the cost order: behind the heavier lists of its kind and the equal ones before it. Reads
/// every key, so it is for few lists; as a part of write_lists it saves the launch and the latency of a sort.
__device__ inline void rank_list(const BuildArrays& a, const ListWalk& walk, std::int32_t lane) {
  const std::int32_t lists = walk.is_row ? a.row_lists() : a.column_lists();
  const std::int32_t base = walk.is_row ? 0 : a.row_lists();
  const std::uint32_t mine = a.keys[base + walk.number];
  std::uint32_t before = 0;
#pragma unroll 4
  for (std::int32_t i = lane; i < lists; i += warp_size) {
    const std::uint32_t key = a.keys[base + i];
    before += key > mine || (key == mine && i < walk.number);
  }
  before = __reduce_add_sync(0xffffffffU, before);
  if (lane == 0) a.order[base + static_cast<std::int32_t>(before)] = walk.number;
}

/// One warp per list: writes its runs, or the one run that spans it, and says which bitmaps are to be filled.
template <bool Plain>
__global__ void __launch_bounds__(list_threads, 8) write_lists(BuildArrays a) {
  const std::int64_t list = (std::int64_t{blockIdx.x} * list_threads + threadIdx.x) / warp_size;
  if (list >= std::int64_t{a.row_lists()} + a.column_lists()) return;
  const TileGrid grid = grid_of<Plain>(a);
  const ListWalk walk(a, grid, static_cast<std::int32_t>(list));
  const ListPlace place = a.places[list];
  const std::int32_t lane = threadIdx.x % warp_size;
  if (a.order != nullptr) rank_list(a, walk, lane);
  if (place.count == 0) return;
  Run* const runs = (walk.is_row ? a.row_runs : a.column_runs) + place.begin;
  const unsigned below = (1U << lane) - 1U;
  constexpr unsigned all = 0xffffffffU;
  std::int32_t runs_before = 0, bitmaps_before = 0, open_first = 0, first_visible = -1, last_visible = -1;
  // walk_list goes one block past the end, so that the last run is always closed by a masked one.
  const std::int32_t step = walk.step;
  const auto group = [&](std::int32_t start, std::uint32_t word, std::uint32_t before) {
    const std::int32_t i = start + lane * step;
    const auto last_of = [&](unsigned lanes) { return start + (31 - __clz(static_cast<int>(lanes))) * step; };
    const unsigned visible = __ballot_sync(all, word != 0);
    const unsigned starts = __ballot_sync(all, word != 0 && word != before);
    const unsigned partials = __ballot_sync(all, has_partial(word));
    if (place.fits) {
      const unsigned earlier = starts & below;
      const std::int32_t run = runs_before + __popc(earlier);
      if (before != 0 && word != before) {  // this block ends the run before it
        const std::int32_t extent = i - (earlier != 0 ? last_of(earlier) : open_first);
        runs[run - 1].count = step == 1 ? extent : extent / step;
      }
      if (word != 0 && word != before) {
        const bool mapped = has_partial(word) && place.bitmap >= 0;
        runs[run].first = i;
        runs[run].classes = word;
        runs[run].bitmap = mapped ? place.bitmap + bitmaps_before + __popc(partials & below) : -1;
      }
    }
    if (place.bitmap_range >= 0 && has_partial(word)) {
      const std::int32_t bitmap = place.bitmap_range + bitmaps_before + __popc(partials & below);
      a.bitmap_list[bitmap] = place.bitmap >= 0 ? walk.number : -1;
      a.bitmap_block[bitmap] = i;
    }
    if (visible != 0) {
      if (first_visible < 0) first_visible = start + (__ffs(static_cast<int>(visible)) - 1) * step;
      last_visible = last_of(visible);
    }
    if (starts != 0) open_first = last_of(starts);
    runs_before += __popc(starts), bitmaps_before += __popc(partials);
  };
  walk_list(grid, walk, group, [&](std::int32_t start, std::uint32_t word) {
    if (word != 0) last_visible = start + warp_size - 1;
  });
  if (!place.fits && lane == 0) {
    runs[0] = {first_visible, (last_visible - first_visible + step - 1) / step + 1,
               all_partial(grid, walk.is_row ? walk.fixed : first_visible), -1};
  }
}

/// One CTA of 128 * subtiles threads per bitmap, striding over all of them.
__global__ void fill_bitmaps(BuildArrays a) {
  __shared__ HiddenRows columns[max_bitmap_columns];
  const std::int32_t used = *a.bitmaps_used;
  for (std::int32_t bitmap = blockIdx.x; bitmap < used; bitmap += gridDim.x) {
    const std::int32_t list = a.bitmap_list[bitmap];
    if (list < 0) continue;
    const std::int64_t base = std::int64_t{list / a.grid.row_tiles} * a.grid.padded_columns +
                              std::int64_t{a.bitmap_block[bitmap]} * a.grid.unit();
    __syncthreads();  // the columns of the previous bitmap have been read
    for (std::int32_t c = threadIdx.x; c < a.grid.block_n; c += blockDim.x) {
      columns[c] = {a.lts[base + c], a.lte[base + c], a.uts[base + c], a.ute[base + c]};
    }
    __syncthreads();
    a.bitmaps[std::int64_t{bitmap} * blockDim.x + threadIdx.x] =
        bitmap_word(a.grid, list % a.grid.row_tiles, static_cast<std::int32_t>(threadIdx.x),
                    [](std::int32_t c) { return columns[c]; });
  }
}

}  // namespace flashmask::sm90::tile_map
