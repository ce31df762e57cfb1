// Order of a dQ tile in the float32 workspace: as the accumulators of dQ^T = K^T dS^T hold it, so that every reduction
// of a warp covers 512 contiguous bytes.
#pragma once

#include <cstdint>

#include "flashmask/host_device.hpp"

namespace flashmask::sm90::backward_pass {

/// Offset, in floats inside the tile, of the four accumulators 4 * `quad` ... 4 * `quad` + 3 of `thread` for the 64
/// head_dim elements of `half`.
FLASHMASK_HOST_DEVICE constexpr std::int32_t dq_fragment_offset(std::int32_t half, std::int32_t quad,
                                                                std::int32_t thread) {
  return half * 4096 + (quad * 128 + thread) * 4;
}

/// Row of the tile of element `e` (0 to 3) of that group.
FLASHMASK_HOST_DEVICE constexpr std::int32_t dq_fragment_row(std::int32_t quad, std::int32_t thread, std::int32_t e) {
  return quad * 8 + thread % 4 * 2 + e % 2;
}

/// Element of head_dim of element `e` of that group.
FLASHMASK_HOST_DEVICE constexpr std::int32_t dq_fragment_dim(std::int32_t half, std::int32_t thread, std::int32_t e) {
  return half * 64 + thread / 32 * 16 + thread % 32 / 4 + e / 2 * 8;
}

}  // namespace flashmask::sm90::backward_pass
