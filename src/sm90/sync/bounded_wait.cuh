// Waiting on mbarriers with a bound. A wait that passes its bound writes an error word and falls through, so that a
// broken pipeline ends in an error report instead of a hang. No trap: ptxas would drop the raised register budget.
#pragma once

#include <cstdint>

#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/fence.cuh"
#include "sm90/sync/wait_site.hpp"

namespace flashmask::sm90 {

/// Failed tries between two looks at the error word, and in all before giving up. One try suspends the thread for up to
/// a few microseconds in hardware, so the bound is seconds, not a precise time.
inline constexpr std::uint32_t tries_between_checks = 1U << 12;
inline constexpr std::uint32_t tries_before_giving_up = 1U << 23;

/// Waits until the phase of `parity` of `barrier` has completed. `error` is a word in global memory.
__device__ __forceinline__ void bounded_wait(std::uint32_t barrier, std::uint32_t parity, std::uint32_t* error,
                                             WaitSite site) {
  if (ptx::mbarrier_try_wait(barrier, parity)) return;
#pragma unroll 1
  for (std::uint32_t tries = 1; !ptx::mbarrier_try_wait(barrier, parity); ++tries) {
    if (tries % tries_between_checks != 0) continue;
    if (ptx::load_volatile(error) != 0) return;
    if (tries >= tries_before_giving_up) {
      atomicCAS(error, 0U, static_cast<std::uint32_t>(site));
      return;
    }
  }
}

/// Place in a ring of `Stages` slots and the parity of its current lap.
template <std::uint32_t Stages>
struct RingPosition {
  std::uint32_t stage = 0;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1U;
    }
  }
};

}  // namespace flashmask::sm90
