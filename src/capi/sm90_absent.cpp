// The sm90 section of the C ABI in a build without CUDA: every function refuses by name.
#include "capi/boundary.hpp"

namespace {

flashmask_status refuse() {
  return flashmask::capi::record_failure(
      FLASHMASK_UNSUPPORTED,
      "this library was built without CUDA: configure with cmake --preset cuda where nvcc is found, or call "
      "flashmask_forward and flashmask_backward, which run on the CPU");
}

}  // namespace

extern "C" {

flashmask_status flashmask_sm90_forward_tile(const flashmask_mask*, int64_t, int32_t*, int32_t*) {
  return refuse();
}
flashmask_status flashmask_sm90_choose_forward_tile(const flashmask_mask*, flashmask_attention_shape, int32_t*,
                                                    int32_t*) {
  return refuse();
}
flashmask_status flashmask_sm90_backward_tile(int32_t*, int32_t*) {
  return refuse();
}
flashmask_status flashmask_sm90_choose_backward_tile(const flashmask_mask*, flashmask_attention_shape, int32_t,
                                                     int32_t*, int32_t*) {
  return refuse();
}
flashmask_status flashmask_device_mask_create(flashmask_mask_shape, int32_t, int32_t, flashmask_device_mask**) {
  return refuse();
}
flashmask_status flashmask_device_mask_create_for(flashmask_mask_shape, int32_t, int32_t, flashmask_attention_shape,
                                                  flashmask_device_mask**) {
  return refuse();
}
flashmask_status flashmask_device_mask_refill(flashmask_device_mask*, const int32_t*, const int32_t*, const int32_t*,
                                              const int32_t*, void*) {
  return refuse();
}
void flashmask_device_mask_destroy(flashmask_device_mask*) {}
flashmask_status flashmask_sm90_forward_workspace_bytes(size_t*) {
  return refuse();
}
flashmask_status flashmask_sm90_prepare_workspace(void*, void*) {
  return refuse();
}
flashmask_status flashmask_sm90_check_workspace(const void*, void*) {
  return refuse();
}
flashmask_status flashmask_sm90_forward(const flashmask_sm90_forward_arguments*) {
  return refuse();
}
flashmask_status flashmask_sm90_backward_workspace_bytes(flashmask_attention_shape, flashmask_mask_shape, int32_t,
                                                         size_t*) {
  return refuse();
}
flashmask_status flashmask_sm90_backward(const flashmask_sm90_backward_arguments*) {
  return refuse();
}
flashmask_status flashmask_sm90_check_backward_workspace(const void*, void*) {
  return refuse();
}

}  // extern "C"
