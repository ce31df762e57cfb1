// CUDA runtime calls that must not fail: `check_cuda(cudaMalloc(&p, n), "cudaMalloc of the tile map")`.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>
#include <string_view>

#include "flashmask/error.hpp"

namespace flashmask::sm90 {

/// Throws ErrorCode::device (out_of_memory for a failed allocation) naming the call and what CUDA said of it. No {fmt}
/// here: nvcc 13.0 cannot evaluate its compile-time checks, and this header is for .cu files too.
inline void check_cuda(cudaError_t status, std::string_view call,
                       std::source_location location = std::source_location::current()) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // a reported error must not surface again at the next launch
  const ErrorCode code = status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device;
  throw Error(code,
              std::string(call) + " failed: " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")",
              location);
}

}  // namespace flashmask::sm90
