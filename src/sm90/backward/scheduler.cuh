// Role of one thread: draws the next column block while the present one is being worked on, so that the loader finds it
// ready. Apart from the loader because both together want more than a loader's 32 registers.
#pragma once

#include <cstdint>

#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/sweep.hpp"
#include "sm90/backward/wait.cuh"
#include "sm90/backward/work_list.cuh"
#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/shared_address.cuh"

namespace flashmask::sm90::backward_pass {

template <BackwardConfig C>
__device__ __forceinline__ void draw_blocks(const MainParameters& p, SharedMemory<C>& memory) {
  constexpr std::uint32_t stages = SharedMemory<C>::stages;
  auto item = static_cast<std::int32_t>(blockIdx.x);
  for (std::uint32_t drawn = 0;; ++drawn) {
    const WorkBlock found = next_block(p, item);
    const std::int32_t tiles = found.block < 0 ? 0 : block_tiles(p.extents, p.lists, found);
    // The columns free the slot of a complete block when they have read where its dK and dV belong.
    const std::uint32_t stage = drawn % stages;
    wait_for(ptx::shared_address(&memory.empty_work[stage]), (drawn / stages & 1U) ^ 1U, p.error);
    ptx::store_shared_v4(ptx::shared_address(&memory.work[stage]), static_cast<std::uint32_t>(found.batch),
                         static_cast<std::uint32_t>(found.kv_head), static_cast<std::uint32_t>(found.block),
                         static_cast<std::uint32_t>(found.last_head));
    memory.tiles[stage] = tiles;
    ptx::mbarrier_arrive(ptx::shared_address(&memory.full_work[stage]));
    if (found.block < 0) return;
    item = static_cast<std::int32_t>(gridDim.x + atomicAdd(p.counter, 1U));
  }
}

}  // namespace flashmask::sm90::backward_pass
