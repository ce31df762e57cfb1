// From the structs of the C ABI to the types of the library.
#pragma once

#include <algorithm>
#include <optional>

#include "core/check.hpp"
#include "flashmask/attention.hpp"
#include "flashmask/flashmask.h"

namespace flashmask::capi {

inline DType dtype_of(std::int32_t dtype) {
  switch (dtype) {
    case FLASHMASK_F32:
      return DType::f32;
    case FLASHMASK_F16:
      return DType::f16;
    case FLASHMASK_BF16:
      return DType::bf16;
  }
  core::fail(ErrorCode::invalid_argument,
             "dtype is {}: expected FLASHMASK_F32 (0), FLASHMASK_F16 (1) or FLASHMASK_BF16 (2)", dtype);
}

inline AttentionShape shape_of(const flashmask_attention_shape& s) {
  return {s.batch, s.rows, s.columns, s.query_heads, s.kv_heads, s.head_dim};
}

inline MutableTensorView tensor_of(const flashmask_tensor& t, DType dtype) {
  MutableTensorView view{t.data, dtype, {}};
  std::copy_n(t.strides, 4, view.strides.begin());
  return view;
}

/// 0 stands for the default.
inline std::optional<float> scale_of(float scale) {
  return scale == 0.0F ? std::nullopt : std::optional(scale);
}

}  // namespace flashmask::capi
