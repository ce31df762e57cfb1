// Role of one thread: draws the next column block while the present one is being worked on, so that the loader finds it
// ready. Apart from the loader because both together want more than a loader's 32 registers.
#pragma once

#include <cstdint>

#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/sweep.hpp"
#include "sm90/backward/wait.cuh"
#include "sm90/backward/work_list.cuh"
#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/cluster.cuh"
#include "sm90/ptx/fence.cuh"
#include "sm90/ptx/shared_address.cuh"

namespace flashmask::sm90::backward_pass {

/// Tells both CTAs of a pair of a block, and where its sweep begins.
template <BackwardConfig C>
__device__ __forceinline__ void fill_slots(const MainParameters& p, SharedMemory<C>& memory, std::uint32_t stage,
                                           const WorkBlock& found, std::int32_t tiles) {
  std::uint32_t front = 0;
  if (p.front != nullptr && found.block >= 0) {
    front = ptx::load_volatile(p.front + found.batch * p.extents.kv_heads + found.kv_head);
  }
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const std::uint32_t slot = ptx::address_in(ptx::shared_address(&memory.work[stage]), rank);
    ptx::store_cluster_u32(slot, static_cast<std::uint32_t>(found.batch));
    ptx::store_cluster_u32(slot + 4, static_cast<std::uint32_t>(found.kv_head));
    ptx::store_cluster_u32(slot + 8, static_cast<std::uint32_t>(found.block));
    ptx::store_cluster_u32(slot + 12, static_cast<std::uint32_t>(found.last_head));
    ptx::store_cluster_u32(ptx::address_in(ptx::shared_address(&memory.tiles[stage]), rank),
                           static_cast<std::uint32_t>(tiles));
    ptx::store_cluster_u32(ptx::address_in(ptx::shared_address(&memory.pair.fronts[stage]), rank), front);
    ptx::mbarrier_arrive_release_cluster(ptx::address_in(ptx::shared_address(&memory.full_work[stage]), rank));
  }
}

template <BackwardConfig C>
__device__ __forceinline__ void draw_blocks(const MainParameters& p, SharedMemory<C>& memory) {
  constexpr std::uint32_t stages = SharedMemory<C>::stages;
  if (C.paired && ptx::cluster_rank() != 0) return;  // the first CTA draws for both
  const std::uint32_t callers = gridDim.x / C.ctas();
  const auto waiting = static_cast<std::int32_t>(*p.waiting);
  auto item = static_cast<std::int32_t>(blockIdx.x / C.ctas());
  for (std::uint32_t drawn = 0;; ++drawn) {
    const WorkBlock found = next_block(p, waiting, item, callers);
    const std::int32_t tiles = found.block < 0 ? 0 : block_tiles(p.extents, p.lists, found);
    // The columns free the slot of a complete block when they have read where its dK and dV belong.
    const std::uint32_t stage = drawn % stages;
    wait_for(ptx::shared_address(&memory.empty_work[stage]), (drawn / stages & 1U) ^ 1U, p.error);
    if constexpr (C.paired) {
      fill_slots(p, memory, stage, found, tiles);
    } else {
      ptx::store_shared_v4(ptx::shared_address(&memory.work[stage]), static_cast<std::uint32_t>(found.batch),
                           static_cast<std::uint32_t>(found.kv_head), static_cast<std::uint32_t>(found.block),
                           static_cast<std::uint32_t>(found.last_head));
      memory.tiles[stage] = tiles;
      ptx::mbarrier_arrive(ptx::shared_address(&memory.full_work[stage]));
    }
    if (found.block < 0) return;
    item = static_cast<std::int32_t>(callers + atomicAdd(p.counter, 1U));
  }
}

}  // namespace flashmask::sm90::backward_pass
