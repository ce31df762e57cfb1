// Role of one thread of a CTA of a pair: sends the CTA's dS to the other one as soon as it is stored. Apart from the dQ
// warpgroup, which may still be at the reductions of the tile before.
#pragma once

#include <cstdint>

#include "sm90/backward/parameters.hpp"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/wait.cuh"
#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/cluster.cuh"
#include "sm90/ptx/shared_address.cuh"

namespace flashmask::sm90::backward_pass {

template <BackwardConfig C>
__device__ __forceinline__ void send_ds(const MainParameters& p, SharedMemory<C>& memory) {
  using Memory = SharedMemory<C>;
  const std::uint32_t other = ptx::cluster_rank() ^ 1U;
  for (std::uint32_t tile = 0;; ++tile) {
    const std::uint32_t stage = tile % Memory::stages;
    wait_for(ptx::shared_address(&memory.full_ds[stage]), tile / Memory::stages & 1U, p.error);
    const volatile TileWord& word = memory.words[tile % Memory::word_slots];
    if ((word.flags & tile_flag::end) != 0) return;
    // The other one's stage is free: the columns have waited for its dQ warpgroup before they stored this dS.
    const std::uint32_t landed = ptx::shared_address(&memory.pair.full_ds[stage]);
    const bool own = C.alternates() && stage != other;  // this CTA computes dQ of the tile, of which it sends nothing
    const bool others = C.alternates() && !own;
    if (!others) ptx::mbarrier_arrive_expect_tx(landed, sizeof(memory.ds[0]));
    if (own) continue;
    ptx::bulk_copy_to_cta(ptx::address_in(ptx::shared_address(memory.peer_ds[stage % Memory::peer_stages]), other),
                          ptx::shared_address(memory.ds[stage]), sizeof(memory.ds[0]), ptx::address_in(landed, other));
  }
}

}  // namespace flashmask::sm90::backward_pass
