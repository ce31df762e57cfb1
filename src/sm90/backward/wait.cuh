// Bounded waits. Nothing traps: a role that gives up says so in the error word and falls through, so that the call
// returns an error instead of hanging. (A trap in the loop also costs ptxas the raised register budget.)
#pragma once

#include <cstdint>

#include "sm90/ptx/barrier.cuh"

namespace flashmask::sm90::backward_pass {

inline constexpr std::uint32_t wait_tries = 1U << 22;  ///< each try may suspend for about a microsecond

__device__ __forceinline__ void wait_for(std::uint32_t barrier, std::uint32_t parity, std::uint32_t* error) {
  for (std::uint32_t tries = 0; !ptx::mbarrier_try_wait(barrier, parity); ++tries) {
    if (tries == wait_tries) {
      *error = 1;
      return;
    }
  }
}

}  // namespace flashmask::sm90::backward_pass
