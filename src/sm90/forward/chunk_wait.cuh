// The loader's wait for remote data: the chunks that hold the columns of one block, nothing else.
#pragma once

#include <cstdint>

#include "sm90/forward/parameters.hpp"
#include "sm90/forward/config.hpp"
#include "sm90/ptx/fence.cuh"
#include "sm90/ptx/warp.cuh"
#include "sm90/sync/bounded_wait.cuh"

namespace flashmask::sm90::forward_pass {

/// Waits until every chunk that overlaps `block` has reached the epoch (acquire at system scope), then makes it visible
/// to bulk copies. Past the deadline it records the wait and lets the kernel end.
template <ForwardConfig C>
__device__ __forceinline__ void wait_for_chunks(const ForwardParameters& p, std::int32_t block) {
  const std::int32_t first = block * C.block_n;
  const std::int32_t last = min(first + C.block_n, p.map.columns) - 1;
  for (std::int32_t chunk = first / p.progress.chunk_columns; chunk <= last / p.progress.chunk_columns; ++chunk) {
    const std::uint64_t* word = p.progress.words + chunk;
    if (ptx::load_acquire_system(word) >= p.progress.epoch) continue;
    const std::uint64_t start = ptx::global_timer();
    while (ptx::load_acquire_system(word) < p.progress.epoch) {
      if (ptx::load_volatile(&p.workspace->error) != 0) return;
      if (ptx::global_timer() - start > std::uint64_t{1000000} * p.progress.deadline_milliseconds) {
        atomicCAS(&p.workspace->error, 0U,
                  static_cast<std::uint32_t>(WaitSite::chunk) | static_cast<std::uint32_t>(chunk) << 8);
        return;
      }
      ptx::sleep_nanoseconds(100);
    }
  }
  ptx::fence_proxy_async_global();
}

}  // namespace flashmask::sm90::forward_pass
