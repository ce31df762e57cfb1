#include "sm90/forward/launch.cuh"

namespace flashmask::sm90::forward_pass {

struct Instance_d64_bf16_packed {
  static constexpr ForwardConfig config = config_of({packed_rows, 128}, 64, Element::bf16, false);
};

cudaError_t launch_d64_bf16_packed(const ForwardParameters& p, std::int32_t grid, cudaStream_t stream) {
  return launch_instance<Instance_d64_bf16_packed>(p, grid, stream);
}

}  // namespace flashmask::sm90::forward_pass
