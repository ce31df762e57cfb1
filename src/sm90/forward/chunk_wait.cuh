// The loader's wait for remote data: the chunks that hold the columns of one block, nothing else.
#pragma once

#include <cstdint>

#include "sm90/forward/config.hpp"
#include "sm90/forward/parameters.hpp"
#include "sm90/ptx/fence.cuh"
#include "sm90/ptx/warp.cuh"
#include "sm90/sync/bounded_wait.cuh"

namespace flashmask::sm90::forward_pass {

/// Time in units of 2^20 ns, close to a millisecond, in one register.
__device__ __forceinline__ std::uint32_t milliseconds() {
  return static_cast<std::uint32_t>(ptx::global_timer() >> 20);
}

/// Waits for one chunk; past the deadline it records the wait and lets the kernel end.
__device__ __forceinline__ void wait_for_chunk(const ForwardParameters& p, std::int32_t chunk) {
  const std::uint64_t* word = p.progress.words + chunk;
  if (ptx::load_acquire_system(word) >= p.progress.epoch) return;
  const std::uint32_t start = milliseconds();
#pragma unroll 1
  while (ptx::load_acquire_system(word) < p.progress.epoch) {
    if (ptx::load_volatile(&p.workspace->error) != 0) return;
    if (milliseconds() - start > p.progress.deadline_milliseconds) {
      atomicCAS(&p.workspace->error, 0U,
                static_cast<std::uint32_t>(WaitSite::chunk) | static_cast<std::uint32_t>(chunk) << 8);
      return;
    }
    ptx::sleep_nanoseconds(100);
  }
}

/// Waits until every chunk that overlaps `block` has reached the epoch (acquire at system scope), then makes it visible
/// to bulk copies.
template <ForwardConfig C>
__device__ __forceinline__ void wait_for_chunks(const ForwardParameters& p, std::int32_t block) {
  const std::int32_t last = (min(block * C.unit() + C.block_n, p.map.columns) - 1) / p.progress.chunk_columns;
#pragma unroll 1
  for (std::int32_t chunk = block * C.unit() / p.progress.chunk_columns; chunk <= last; ++chunk) {
    wait_for_chunk(p, chunk);
  }
  ptx::fence_proxy_async_global();
}

}  // namespace flashmask::sm90::forward_pass
