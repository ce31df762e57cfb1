// Launches one instance; each instance is a translation unit of its own so that it compiles in seconds.
#pragma once

#include <cuda_runtime.h>

#include "sm90/forward/kernel.cuh"
#include "sm90/forward/launch.hpp"
#include "sm90/load_kernels.hpp"

namespace flashmask::sm90::forward_pass {

template <class Instance>
cudaError_t launch_instance(const ForwardParameters& p, std::int32_t grid, cudaStream_t stream) {
  constexpr ForwardConfig C = Instance::config;
  constexpr auto bytes = static_cast<int>(shared_memory_bytes<C>());
  const cudaError_t status =
      cudaFuncSetAttribute(forward_kernel<Instance>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  if (grid == 0) return load_kernel(forward_kernel<Instance>);
  forward_kernel<Instance><<<static_cast<unsigned>(grid), C.threads(), bytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace flashmask::sm90::forward_pass
