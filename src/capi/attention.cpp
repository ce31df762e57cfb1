#include "flashmask/attention.hpp"

#include "capi/boundary.hpp"
#include "capi/convert.hpp"
#include "capi/handles.hpp"

namespace flashmask::capi {
namespace {

MaskArgument mask_of(const flashmask_mask* mask, const flashmask_tile_map* map) {
  const flashmask_mask& called = required(mask, "mask");
  core::check(
      map == nullptr || map->mask_digest == called.digest,
      "map was built for another mask (digest {:016x}, the call's mask has {:016x}): create it from this mask or "
      "pass NULL",
      map == nullptr ? 0 : map->mask_digest, called.digest);
  return {&called.value, map == nullptr ? nullptr : &map->value};
}

}  // namespace
}  // namespace flashmask::capi

extern "C" {

flashmask_status flashmask_forward(const flashmask_forward_arguments* arguments) {
  using namespace flashmask::capi;
  return guarded([&] {
    const auto a = sized_copy(arguments, "arguments");
    flashmask::ForwardArguments f;
    set_common(f, a);
    f.mask = mask_of(a.mask, a.map);
    f.threads = a.threads;
    flashmask::forward(f);
  });
}

flashmask_status flashmask_backward(const flashmask_backward_arguments* arguments) {
  using namespace flashmask::capi;
  return guarded([&] {
    const auto a = sized_copy(arguments, "arguments");
    flashmask::BackwardArguments b;
    set_common(b, a);
    set_gradients(b, a);
    b.mask = mask_of(a.mask, a.map);
    b.threads = a.threads;
    flashmask::backward(b);
  });
}

}  // extern "C"
