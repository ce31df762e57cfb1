#include "sm90/forward/launch.cuh"

namespace flashmask::sm90::forward_pass {

struct Instance_d128_f16_packed {
  static constexpr ForwardConfig config = config_of({packed_rows, 80}, 128, Element::f16, false);
};

cudaError_t launch_d128_f16_packed(const ForwardParameters& p, std::int32_t grid, cudaStream_t stream) {
  return launch_instance<Instance_d128_f16_packed>(p, grid, stream);
}

}  // namespace flashmask::sm90::forward_pass
