#include "sm90/forward/launch.cuh"

namespace flashmask::sm90::forward_pass {

struct Instance_d64_bf16_packed_chunks {
  static constexpr ForwardConfig config = config_of({packed_rows, 128}, 64, Element::bf16, true);
};

cudaError_t launch_d64_bf16_packed_chunks(const ForwardParameters& p, std::int32_t grid, cudaStream_t stream) {
  return launch_instance<Instance_d64_bf16_packed_chunks>(p, grid, stream);
}

}  // namespace flashmask::sm90::forward_pass
