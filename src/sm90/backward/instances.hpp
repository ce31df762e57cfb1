// The compiled instances of the main kernel, one translation unit each.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "sm90/backward/config.hpp"
#include "sm90/backward/parameters.hpp"
#include "sm90/backward/row_pass.hpp"

namespace flashmask::sm90::backward_pass {

inline constexpr BackwardConfig d128_bf16{.head_dim = 128, .bf16 = true, .accumulate_dq = true};
inline constexpr BackwardConfig d128_f16{.head_dim = 128, .bf16 = false, .accumulate_dq = true};
inline constexpr BackwardConfig d64_bf16{.head_dim = 64, .bf16 = true, .accumulate_dq = true};
inline constexpr BackwardConfig d64_f16{.head_dim = 64, .bf16 = false, .accumulate_dq = true};
inline constexpr BackwardConfig d128_bf16_deterministic{.head_dim = 128, .bf16 = true, .accumulate_dq = false};
inline constexpr BackwardConfig d128_f16_deterministic{.head_dim = 128, .bf16 = false, .accumulate_dq = false};
inline constexpr BackwardConfig d64_bf16_deterministic{.head_dim = 64, .bf16 = true, .accumulate_dq = false};
inline constexpr BackwardConfig d64_f16_deterministic{.head_dim = 64, .bf16 = false, .accumulate_dq = false};
inline constexpr BackwardConfig d128_bf16_paired{.head_dim = 128, .bf16 = true, .accumulate_dq = true, .paired = true};
inline constexpr BackwardConfig d128_f16_paired{.head_dim = 128, .bf16 = false, .accumulate_dq = true, .paired = true};
inline constexpr BackwardConfig d64_bf16_paired{.head_dim = 64, .bf16 = true, .accumulate_dq = true, .paired = true};
inline constexpr BackwardConfig d64_f16_paired{.head_dim = 64, .bf16 = false, .accumulate_dq = true, .paired = true};

/// Queue the main kernel on `blocks` SMs; return CUDA's status. All of these load their kernel where a call has no
/// blocks.
using LaunchMain = cudaError_t(const MainParameters& parameters, std::int32_t blocks, cudaStream_t stream);
LaunchMain launch_d128_bf16, launch_d128_f16, launch_d64_bf16, launch_d64_f16, launch_d128_bf16_paired,
    launch_d128_f16_paired, launch_d64_bf16_paired, launch_d64_f16_paired;
LaunchMain launch_d128_bf16_deterministic, launch_d128_f16_deterministic, launch_d64_bf16_deterministic,
    launch_d64_f16_deterministic;

/// Queue the sums of the parts of split groups.
using LaunchCombine = cudaError_t(const CombineParameters& parameters, cudaStream_t stream);
LaunchCombine launch_combine_d128_bf16, launch_combine_d128_f16, launch_combine_d64_bf16, launch_combine_d64_f16;

/// Queue the row pass of the deterministic mode.
using LaunchRows = cudaError_t(const RowParameters& parameters, cudaStream_t stream);
LaunchRows launch_rows_d128_bf16, launch_rows_d128_f16, launch_rows_d64_bf16, launch_rows_d64_f16;

}  // namespace flashmask::sm90::backward_pass
