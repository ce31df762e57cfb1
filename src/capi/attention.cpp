#include "flashmask/attention.hpp"

#include <algorithm>

#include "capi/boundary.hpp"
#include "capi/handles.hpp"

namespace flashmask::capi {
namespace {

DType dtype_of(std::int32_t dtype) {
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

AttentionShape shape_of(const flashmask_attention_shape& s) {
  return {s.batch, s.rows, s.columns, s.query_heads, s.kv_heads, s.head_dim};
}

MutableTensorView tensor_of(const flashmask_tensor& t, DType dtype) {
  MutableTensorView view{t.data, dtype, {}};
  std::copy_n(t.strides, 4, view.strides.begin());
  return view;
}

MaskArgument mask_of(const flashmask_mask* mask, const flashmask_tile_map* map) {
  return {&required(mask, "mask").value, map == nullptr ? nullptr : &map->value};
}

std::optional<float> scale_of(float scale) {
  return scale == 0.0F ? std::nullopt : std::optional(scale);
}

}  // namespace
}  // namespace flashmask::capi

extern "C" {

flashmask_status flashmask_forward(const flashmask_forward_arguments* arguments) {
  using namespace flashmask::capi;
  return guarded([&] {
    const auto a = sized_copy(arguments, "arguments");
    const auto dtype = dtype_of(a.dtype);
    flashmask::ForwardArguments f;
    f.shape = shape_of(a.shape);
    f.mask = mask_of(a.mask, a.map);
    f.q = tensor_of(a.q, dtype);
    f.k = tensor_of(a.k, dtype);
    f.v = tensor_of(a.v, dtype);
    f.out = tensor_of(a.out, dtype);
    f.lse = a.lse;
    f.scale = scale_of(a.scale);
    f.threads = a.threads;
    flashmask::forward(f);
  });
}

flashmask_status flashmask_backward(const flashmask_backward_arguments* arguments) {
  using namespace flashmask::capi;
  return guarded([&] {
    const auto a = sized_copy(arguments, "arguments");
    const auto dtype = dtype_of(a.dtype);
    flashmask::BackwardArguments b;
    b.shape = shape_of(a.shape);
    b.mask = mask_of(a.mask, a.map);
    b.q = tensor_of(a.q, dtype);
    b.k = tensor_of(a.k, dtype);
    b.v = tensor_of(a.v, dtype);
    b.out = tensor_of(a.out, dtype);
    b.dout = tensor_of(a.dout, dtype);
    b.lse = a.lse;
    b.dq = tensor_of(a.dq, dtype);
    b.dk = tensor_of(a.dk, dtype);
    b.dv = tensor_of(a.dv, dtype);
    b.scale = scale_of(a.scale);
    b.threads = a.threads;
    flashmask::backward(b);
  });
}

}  // extern "C"
