// The instances of the forward kernel, by name.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "sm90/forward/config.hpp"
#include "sm90/forward/limits.hpp"
#include "sm90/forward/parameters.hpp"

namespace flashmask::sm90 {

struct ForwardArguments;

}  // namespace flashmask::sm90

namespace flashmask::sm90::forward_pass {

/// Queues an instance on `grid` SMs, on none loads it; returns CUDA's status.
using Launch = cudaError_t(const ForwardParameters& p, std::int32_t grid, cudaStream_t stream);

Launch launch_d64_bf16, launch_d64_f16, launch_d128_bf16, launch_d128_f16, launch_d128_bf16_n64, launch_d128_f16_n64;
Launch launch_d64_bf16_packed, launch_d64_f16_packed, launch_d128_bf16_packed, launch_d128_f16_packed;
Launch launch_d64_bf16_chunks, launch_d64_f16_chunks, launch_d128_bf16_chunks, launch_d128_f16_chunks,
    launch_d128_bf16_n64_chunks, launch_d128_f16_n64_chunks;
Launch launch_d64_bf16_packed_chunks, launch_d64_f16_packed_chunks, launch_d128_bf16_packed_chunks,
    launch_d128_f16_packed_chunks;

/// Loads every instance (sm90/load_kernels.hpp).
void load_kernels();

/// Describes a checked call to `kernel`, an instance of `config`, and queues it.
void launch(const ForwardArguments& arguments, const ForwardConfig& config, Launch* kernel);

/// The configuration for tiles of `tile`, one of forward_tiles().
constexpr ForwardConfig config_of(TileShape tile, std::int64_t head_dim, Element element, bool waits_for_chunks) {
  ForwardConfig config;
  config.packed_heads = packed_heads_of(tile);
  config.consumers = tile.block_m * config.packed_heads / 64;
  config.block_n = tile.block_n;
  config.head_dim = head_dim <= 64 ? 64 : 128;
  config.element = element;
  config.waits_for_chunks = waits_for_chunks;
  return config;
}

}  // namespace flashmask::sm90::forward_pass
