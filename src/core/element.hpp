// One element of a strided tensor as a double; for checks, not for kernels.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "flashmask/tensor.hpp"

namespace flashmask::core {

inline double element(const TensorView& t, std::int64_t batch, std::int64_t position, std::int64_t head,
                      std::int64_t dim) {
  const std::int64_t at = batch * t.strides[0] + position * t.strides[1] + head * t.strides[2] + dim * t.strides[3];
  switch (t.dtype) {
    case DType::f32:
      return static_cast<const float*>(t.data)[at];
    case DType::f16:
      return f16_to_float(static_cast<const std::uint16_t*>(t.data)[at]);
    case DType::bf16:
      return bf16_to_float(static_cast<const std::uint16_t*>(t.data)[at]);
  }
  return 0;
}

}  // namespace flashmask::core
