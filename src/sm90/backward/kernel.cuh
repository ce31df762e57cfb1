// The main kernel of the backward: persistent blocks, each drawing column blocks until none is left.
#pragma once

#include <cstdint>
#include <type_traits>

#include "sm90/backward/columns.cuh"
#include "sm90/backward/dq.cuh"
#include "sm90/backward/exchange.cuh"
#include "sm90/backward/loader.cuh"
#include "sm90/backward/overlapped_columns.cuh"
#include "sm90/backward/parameters.hpp"
#include "sm90/backward/scheduler.cuh"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/load_kernels.hpp"
#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/cluster.cuh"
#include "sm90/ptx/fence.cuh"
#include "sm90/ptx/warp.cuh"

namespace flashmask::sm90::backward_pass {

template <BackwardConfig C>
__device__ __forceinline__ void initialise_barriers(SharedMemory<C>& memory) {
  const auto initialise = [](std::uint64_t& barrier, std::uint32_t count) {
    ptx::mbarrier_init(ptx::shared_address(&barrier), count);
  };
  constexpr std::uint32_t columns = column_warps * C.warp_arrivals();
  constexpr std::uint32_t dq = dq_warps * C.warp_arrivals();
  constexpr std::uint32_t ctas = C.ctas();  // what the other CTA of a pair reads too, its readers release
  for (std::uint32_t i = 0; i < SharedMemory<C>::stages; ++i) {
    initialise(memory.full_work[i], 1), initialise(memory.empty_work[i], ctas * columns);
    const bool own = C.alternates() && i == ptx::cluster_rank();  // tiles whose dS this CTA does not send
    initialise(memory.full_ds[i], columns), initialise(memory.empty_ds[i], own ? dq : ctas * dq);
    if constexpr (C.paired) initialise(memory.pair.full_ds[i], 1);
  }
  for (std::uint32_t i = 0; i < SharedMemory<C>::key_stages; ++i) {
    initialise(memory.full_k[i], 1), initialise(memory.empty_k[i], dq);
  }
  for (std::uint32_t i = 0; i < SharedMemory<C>::value_stages; ++i) {
    initialise(memory.full_v[i], 1), initialise(memory.empty_v[i], columns);
  }
  for (std::uint32_t i = 0; i < SharedMemory<C>::row_stages; ++i) {
    initialise(memory.full_q[i], 1), initialise(memory.empty_q[i], ctas * columns);
  }
  for (std::uint32_t i = 0; i < SharedMemory<C>::dout_stages; ++i) {
    initialise(memory.full_dout[i], 1), initialise(memory.empty_dout[i], ctas * columns);
  }
  ptx::fence_mbarrier_init();
}

template <BackwardConfig C>
__global__ void __launch_bounds__(C.threads(), 1)
    main_kernel(const __grid_constant__ MainParameters p, BackwardConfig) {
  static_assert(CheckedConfig<C>::value == C);
  static_assert(sizeof(SharedMemory<C>) <= shared_memory_limit, "the tiles do not fit into shared memory");
  extern __shared__ __align__(1024) std::uint8_t shared[];
  SharedMemory<C>& memory = *reinterpret_cast<SharedMemory<C>*>(shared);
  const std::uint32_t warp = __shfl_sync(~0U, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) initialise_barriers(memory);
  if constexpr (C.paired) {
    ptx::cluster_sync();
  } else {
    __syncthreads();
  }
  if (warp < 8) {
    ptx::registers_increase<C.column_registers()>();
    std::conditional_t<C.overlapped(), OverlappedColumns<C>, Columns<C>> role(p, memory, warp / 4);
    role.run();
  } else if (warp < 12) {
    ptx::registers_decrease<C.dq_registers()>();
    QueryGradient<C> role(p, memory);
    role.run();
  } else {
    ptx::registers_decrease<C.loader_registers()>();
    if (threadIdx.x == 3 * warpgroup_threads) {
      Loader<C> role(p, memory);
      role.run();
    } else if (threadIdx.x == 3 * warpgroup_threads + 32) {
      draw_blocks<C>(p, memory);
    } else if (C.paired && threadIdx.x == 3 * warpgroup_threads + 96) {
      if constexpr (C.paired) send_ds<C>(p, memory);
    }
  }
  if constexpr (C.paired) {  // nobody leaves while the other one may still write here
    __syncwarp();
    ptx::cluster_sync();
  }
}

/// Queues the main kernel on `blocks` SMs; returns CUDA's status.
template <BackwardConfig C>
cudaError_t launch_main(const MainParameters& parameters, std::int32_t blocks, cudaStream_t stream) {
  constexpr std::size_t bytes = sizeof(SharedMemory<C>);
  const cudaError_t status =
      cudaFuncSetAttribute(main_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (status != cudaSuccess) return status;
  if (blocks == 0) return load_kernel(main_kernel<C>);
  if constexpr (C.paired) {
    cudaLaunchAttribute pair{};
    pair.id = cudaLaunchAttributeClusterDimension;
    pair.val.clusterDim = {2, 1, 1};
    cudaLaunchConfig_t launch{};
    launch.gridDim = static_cast<unsigned>(blocks), launch.blockDim = C.threads();
    launch.dynamicSmemBytes = bytes, launch.stream = stream, launch.attrs = &pair, launch.numAttrs = 1;
    return cudaLaunchKernelEx(&launch, main_kernel<C>, parameters, C);
  } else {
    main_kernel<C><<<static_cast<unsigned>(blocks), C.threads(), bytes, stream>>>(parameters, C);
    return cudaGetLastError();
  }
}

}  // namespace flashmask::sm90::backward_pass
