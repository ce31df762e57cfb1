#include "flashmask/attention.hpp"

#include "capi/boundary.hpp"
#include "capi/convert.hpp"
#include "capi/handles.hpp"

namespace flashmask::capi {
namespace {

MaskArgument mask_of(const flashmask_mask* mask, const flashmask_tile_map* map) {
  return {&required(mask, "mask").value, map == nullptr ? nullptr : &map->value};
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
