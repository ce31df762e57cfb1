// After the main kernel: dQ from float32 sums in fragment order to 16-bit rows, times the softmax scale.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "sm90/backward/parameters.hpp"

namespace flashmask::sm90::backward_pass {

struct ConvertParameters {
  Extents extents;
  bool bf16;
  std::int32_t tile_head_dim;  ///< 64 or 128
  float scale;
  const float* dq_sum;  ///< nullptr: dQ = 0
  StridedTensor dq;
};

using LaunchConvert = cudaError_t(const ConvertParameters& parameters, cudaStream_t stream);
LaunchConvert launch_convert;

}  // namespace flashmask::sm90::backward_pass
