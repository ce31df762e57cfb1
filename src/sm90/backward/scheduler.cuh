// Role of one thread: draws the next column block while the present one is being worked on, so that the loader finds it
// ready. Apart from the loader because both together want more than a loader's 32 registers.
#pragma once

#include <cstdint>

#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/sweep.hpp"
#include "sm90/backward/tail.hpp"
#include "sm90/backward/wait.cuh"
#include "sm90/backward/work_list.cuh"
#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/grid.cuh"
#include "sm90/ptx/shared_address.cuh"

namespace flashmask::sm90::backward_pass {

/// The tiles of a drawn block or slice, for a loader that sweeps.
struct DrawnTiles {
  std::int32_t count = 0;
  std::uint32_t start = 0;  ///< as tile_position()
  std::int32_t part = -1;   ///< Tail::part
};

/// As next_block(), with the last blocks cut: draws items until one has a tile.
__device__ __forceinline__ WorkBlock next_slice(const MainParameters& p, std::int32_t item, DrawnTiles& tiles) {
  const std::int32_t items = p.tail.items(work_items(p.extents));
  for (; item < items; item = static_cast<std::int32_t>(gridDim.x + atomicAdd(p.counter, 1U))) {
    const WorkBlock w = work_block(p.extents, p.lists, p.tail.block(item));
    tiles.part = p.tail.part(item);
    TileRange range{0, block_tiles(p.extents, p.lists, w)};
    if (tiles.part >= 0) range = slice_of(range.count, tiles.part % p.tail.slices, p.tail.slices);
    if (range.count == 0) continue;
    tiles.count = range.count;
    tiles.start = range.first == 0 ? 0 : tile_position(p.extents, p.lists, w, range.first);
    return w;
  }
  return {0, 0, -1, -1};
}

template <BackwardConfig C>
__device__ __forceinline__ void draw_blocks(const MainParameters& p, SharedMemory<C>& memory) {
  constexpr std::uint32_t stages = SharedMemory<C>::stages;
  auto item = static_cast<std::int32_t>(blockIdx.x);
  for (std::uint32_t drawn = 0;; ++drawn) {
    DrawnTiles tiles;
    const WorkBlock found = C.split_tail ? next_slice(p, item, tiles) : next_block(p, item);
    if (C.shared_front && found.block >= 0) tiles.count = block_tiles(p.extents, p.lists, found);
    // The columns read the slot until they have written dK and dV.
    const std::uint32_t stage = drawn % stages;
    wait_for(ptx::shared_address(&memory.empty_work[stage]), (drawn / stages & 1U) ^ 1U, p.error);
    ptx::store_shared_v4(ptx::shared_address(&memory.work[stage]), static_cast<std::uint32_t>(found.batch),
                         static_cast<std::uint32_t>(found.kv_head), static_cast<std::uint32_t>(found.block),
                         static_cast<std::uint32_t>(found.last_head));
    if constexpr (C.shared_front || C.split_tail) {
      memory.tiles[stage] = tiles.count;
      memory.start[stage] = tiles.start;
      memory.part[stage] = tiles.part;
    }
    ptx::mbarrier_arrive(ptx::shared_address(&memory.full_work[stage]));
    if (found.block < 0) {
      if constexpr (C.dependent_launch) ptx::launch_dependent_grids();
      return;
    }
    item = static_cast<std::int32_t>(gridDim.x + atomicAdd(p.counter, 1U));
  }
}

}  // namespace flashmask::sm90::backward_pass
