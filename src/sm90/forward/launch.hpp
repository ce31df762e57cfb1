// The instances of the forward kernel, by name.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "sm90/forward/config.hpp"
#include "sm90/forward/parameters.hpp"

namespace flashmask::sm90::forward_pass {

using Launch = cudaError_t(const ForwardParameters& p, std::int32_t grid, cudaStream_t stream);

Launch launch_d64_bf16, launch_d64_f16, launch_d128_bf16, launch_d128_f16;
Launch launch_d64_bf16_chunks, launch_d64_f16_chunks, launch_d128_bf16_chunks, launch_d128_f16_chunks;

/// Defaults found best: 192 x 80 for head_dim up to 128, 192 x 128 for up to 64.
constexpr ForwardConfig default_config(std::int64_t head_dim, Element element, bool waits_for_chunks) {
  ForwardConfig config;
  config.element = element;
  config.waits_for_chunks = waits_for_chunks;
  if (head_dim <= 64) {
    config.head_dim = 64;
    config.block_n = 128;
  }
  return config;
}

}  // namespace flashmask::sm90::forward_pass
