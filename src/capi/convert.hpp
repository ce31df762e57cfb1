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

/// What the argument structs of both backends and both passes call by the same names.
template <typename To, typename From>
void set_common(To& to, const From& from) {
  const DType dtype = dtype_of(from.dtype);
  to.shape = shape_of(from.shape);
  to.q = tensor_of(from.q, dtype), to.k = tensor_of(from.k, dtype), to.v = tensor_of(from.v, dtype);
  to.out = tensor_of(from.out, dtype);
  to.lse = from.lse;
  to.scale = scale_of(from.scale);
}

/// The rest of a backward's tensors.
template <typename To, typename From>
void set_gradients(To& to, const From& from) {
  const DType dtype = dtype_of(from.dtype);
  to.dout = tensor_of(from.dout, dtype);
  to.dq = tensor_of(from.dq, dtype), to.dk = tensor_of(from.dk, dtype), to.dv = tensor_of(from.dv, dtype);
}

}  // namespace flashmask::capi
