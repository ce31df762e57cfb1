#include "sm90/forward/launch.cuh"

namespace flashmask::sm90::forward_pass {

struct Instance_d128_bf16_packed_chunks {
  static constexpr ForwardConfig config = config_of({packed_rows, 80}, 128, Element::bf16, true);
};

cudaError_t launch_d128_bf16_packed_chunks(const ForwardParameters& p, std::int32_t grid, cudaStream_t stream) {
  return launch_instance<Instance_d128_bf16_packed_chunks>(p, grid, stream);
}

}  // namespace flashmask::sm90::forward_pass
