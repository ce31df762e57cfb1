// What the forward kernels take; known without CUDA.
#pragma once

#include <cstdint>

namespace flashmask::sm90::forward_pass {

inline constexpr std::int64_t largest_head_dim = 128;

}  // namespace flashmask::sm90::forward_pass
