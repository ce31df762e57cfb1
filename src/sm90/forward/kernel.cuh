// The forward kernel: prologue, then one if/else over the warpgroup roles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sm90/forward/consumer.cuh"
#include "sm90/forward/index_generator.cuh"
#include "sm90/forward/loader.cuh"
#include "sm90/forward/mask_generator.cuh"
#include "sm90/forward/parameters.hpp"
#include "sm90/forward/shared_memory.hpp"
#include "sm90/ptx/fence.cuh"
#include "sm90/ptx/warp.cuh"

namespace flashmask::sm90::forward_pass {

template <ForwardConfig C>
__device__ __forceinline__ void initialise_barriers(std::uint32_t shared) {
  using Shared = SharedMemory<C>;
  constexpr std::uint32_t consumer_arrivals = 4 * C.consumers * C.warp_arrivals();
  constexpr std::uint32_t generator_arrivals = mask_generators * C.warp_arrivals();
  ptx::mbarrier_init(shared + offsetof(Shared, full_q), 1);
  ptx::mbarrier_init(shared + offsetof(Shared, empty_q), consumer_arrivals);
  for (std::uint32_t i = 0; i < C.stages; ++i) {
    ptx::mbarrier_init(shared + offsetof(Shared, full_k) + 8 * i, 1);
    ptx::mbarrier_init(shared + offsetof(Shared, full_v) + 8 * i, 1);
    ptx::mbarrier_init(shared + offsetof(Shared, empty_k) + 8 * i, consumer_arrivals);
    ptx::mbarrier_init(shared + offsetof(Shared, empty_v) + 8 * i, consumer_arrivals);
  }
  for (std::uint32_t i = 0; i < queue_slots; ++i) {
    ptx::mbarrier_init(shared + offsetof(Shared, full_queue) + 8 * i, C.warp_arrivals());
    ptx::mbarrier_init(shared + offsetof(Shared, empty_queue) + 8 * i, 1 + generator_arrivals);
  }
  for (std::uint32_t i = 0; i < visibility_slots; ++i) {
    ptx::mbarrier_init(shared + offsetof(Shared, full_visibility) + 8 * i, generator_arrivals);
    ptx::mbarrier_init(shared + offsetof(Shared, empty_visibility) + 8 * i, consumer_arrivals);
  }
  ptx::fence_mbarrier_init();
}

/// `Instance` is a type that carries the configuration as `config` (nvcc 13.0 writes a broken host stub for a kernel
/// whose template argument is a structural value of a class in nested namespaces).
template <class Instance>
__global__ void __launch_bounds__(Instance::config.threads(), 1)
    forward_kernel(const __grid_constant__ ForwardParameters p) {
  constexpr ForwardConfig C = Instance::config;
  check_config<C>();
  extern __shared__ __align__(1024) std::uint8_t storage[];
  const std::uint32_t shared = ptx::shared_address(storage);
  if (threadIdx.x == 0) {
    ptx::prefetch_tensor_map(&p.q);
    ptx::prefetch_tensor_map(&p.k);
    ptx::prefetch_tensor_map(&p.v);
    ptx::prefetch_tensor_map(&p.out);
    initialise_barriers<C>(shared);
  }
  __syncthreads();
  const std::uint32_t warp = __shfl_sync(0xFFFFFFFFU, threadIdx.x / 32, 0);
  if (warp < 4) {
    ptx::registers_decrease<C.producer_registers()>();
    if (warp == 0) {
      if (ptx::elect_one()) loader<C>(p, shared);
    } else if (warp == 1) {
      index_generator<C>(p, shared);
    } else {
      mask_generator<C>(p, shared, warp - 2);
    }
  } else {
    ptx::registers_increase<C.consumer_registers()>();
    consumer<C>(p, shared);
  }
}

}  // namespace flashmask::sm90::forward_pass
