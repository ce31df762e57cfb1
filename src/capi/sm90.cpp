// The sm90 section of the C ABI in a build with CUDA.
#include "flashmask/sm90.hpp"

#include "capi/boundary.hpp"
#include "capi/convert.hpp"
#include "capi/handles.hpp"

struct flashmask_device_mask {
  flashmask::sm90::DeviceMask value;
  flashmask::MaskShape shape;
};

namespace {

using namespace flashmask::capi;
namespace sm90 = flashmask::sm90;

flashmask::MaskShape mask_shape_of(const flashmask_mask_shape& s) {
  return {s.batch, s.heads, s.rows, s.columns};
}

/// The two out-parameters of a tile: both there before either is written.
class TileOut {
 public:
  TileOut(int32_t* block_m, int32_t* block_n)
      : block_m_(required(block_m, "block_m")), block_n_(required(block_n, "block_n")) {}
  void set(flashmask::TileShape tile) const { block_m_ = tile.block_m, block_n_ = tile.block_n; }

 private:
  int32_t &block_m_, &block_n_;
};

}  // namespace

extern "C" {

flashmask_status flashmask_sm90_forward_tile(const flashmask_mask* mask, int64_t head_dim, int32_t* block_m,
                                             int32_t* block_n) {
  return guarded([&] {
    const TileOut out(block_m, block_n);
    out.set(mask == nullptr ? sm90::forward_tile(head_dim) : sm90::choose_forward_tile(mask->value, head_dim));
  });
}

flashmask_status flashmask_sm90_choose_forward_tile(const flashmask_mask* mask, flashmask_attention_shape shape,
                                                    int32_t* block_m, int32_t* block_n) {
  return guarded([&] {
    const TileOut out(block_m, block_n);
    out.set(sm90::choose_forward_tile(required(mask, "mask").value, shape_of(shape)));
  });
}

flashmask_status flashmask_sm90_backward_tile(int32_t* block_m, int32_t* block_n) {
  return guarded([&] {
    const TileOut out(block_m, block_n);
    out.set(sm90::backward_tile());
  });
}

flashmask_status flashmask_sm90_choose_backward_tile(const flashmask_mask* mask, flashmask_attention_shape shape,
                                                     int32_t deterministic, int32_t* block_m, int32_t* block_n) {
  return guarded([&] {
    const TileOut out(block_m, block_n);
    out.set(sm90::choose_backward_tile(required(mask, "mask").value, shape_of(shape), deterministic != 0));
  });
}

flashmask_status flashmask_device_mask_create(flashmask_mask_shape shape, int32_t block_m, int32_t block_n,
                                              flashmask_device_mask** mask) {
  return guarded([&] {
    flashmask_device_mask*& out = required(mask, "mask");
    const flashmask::MaskShape s = mask_shape_of(shape);
    out = new flashmask_device_mask{sm90::DeviceMask(s, {block_m, block_n}), s};
  });
}

flashmask_status flashmask_device_mask_create_for(flashmask_mask_shape shape, int32_t block_m, int32_t block_n,
                                                  flashmask_attention_shape calls, flashmask_device_mask** mask) {
  return guarded([&] {
    flashmask_device_mask*& out = required(mask, "mask");
    const flashmask::MaskShape s = mask_shape_of(shape);
    out = new flashmask_device_mask{sm90::DeviceMask(s, {block_m, block_n}, shape_of(calls)), s};
  });
}

flashmask_status flashmask_device_mask_refill(flashmask_device_mask* mask, const int32_t* lts, const int32_t* lte,
                                              const int32_t* uts, const int32_t* ute, void* stream) {
  return guarded([&] {
    flashmask_device_mask& m = required(mask, "mask");
    m.value.refill({lts, lte, uts, ute, m.shape}, stream);
  });
}

void flashmask_device_mask_destroy(flashmask_device_mask* mask) {
  delete mask;
}

flashmask_status flashmask_sm90_forward_workspace_bytes(size_t* bytes) {
  return guarded([&] { required(bytes, "bytes") = sm90::forward_workspace_bytes(); });
}

flashmask_status flashmask_sm90_prepare_workspace(void* workspace, void* stream) {
  return guarded([&] { sm90::prepare_workspace(workspace, stream); });
}

flashmask_status flashmask_sm90_check_workspace(const void* workspace, void* stream) {
  return guarded([&] { sm90::check_workspace(workspace, stream); });
}

flashmask_status flashmask_sm90_forward(const flashmask_sm90_forward_arguments* arguments) {
  return guarded([&] {
    const auto a = sized_copy(arguments, "arguments");
    sm90::ForwardArguments f;
    set_common(f, a);
    f.map = &required(a.mask, "mask").value.view();
    f.workspace = a.workspace;
    f.stream = a.stream;
    f.grid = a.grid;
    sm90::forward(f);
  });
}

flashmask_status flashmask_sm90_backward_workspace_bytes(flashmask_attention_shape shape, flashmask_mask_shape mask,
                                                         int32_t deterministic, size_t* bytes) {
  return guarded([&] {
    required(bytes, "bytes") = sm90::backward_workspace_bytes(shape_of(shape), mask_shape_of(mask), deterministic != 0);
  });
}

flashmask_status flashmask_sm90_backward(const flashmask_sm90_backward_arguments* arguments) {
  return guarded([&] {
    const auto a = sized_copy(arguments, "arguments");
    sm90::BackwardArguments b;
    set_common(b, a);
    set_gradients(b, a);
    b.map = &required(a.mask, "mask").value.view();
    b.workspace = a.workspace;
    b.workspace_bytes = a.workspace_bytes;
    b.stream = a.stream;
    b.deterministic = a.deterministic != 0;
    sm90::backward(b);
  });
}

flashmask_status flashmask_sm90_check_backward_workspace(const void* workspace, void* stream) {
  return guarded([&] { sm90::check_backward_workspace(workspace, stream); });
}

}  // extern "C"
