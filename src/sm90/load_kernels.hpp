// Kernels loaded ahead of their first launch. CUDA loads a kernel when it is launched first, and may then wait for all
// that runs on the device: for ever, if that polls for what the kernel would do.
#pragma once

#include <cuda_runtime_api.h>

namespace flashmask::sm90 {

/// Loads `kernel` on the current device; nothing where it is loaded.
template <typename Kernel>
cudaError_t load_kernel(Kernel* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

/// Loads every kernel of the library on the current device, once a process: what comes after does not wait.
void load_kernels();

}  // namespace flashmask::sm90
