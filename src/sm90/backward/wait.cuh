// Waits of the backward kernels: bounded, reported in the call's error word.
#pragma once

#include <cstdint>

#include "sm90/sync/bounded_wait.cuh"

namespace flashmask::sm90::backward_pass {

__device__ __forceinline__ void wait_for(std::uint32_t barrier, std::uint32_t parity, std::uint32_t* error) {
  bounded_wait(barrier, parity, error, WaitSite::backward);
}

}  // namespace flashmask::sm90::backward_pass
