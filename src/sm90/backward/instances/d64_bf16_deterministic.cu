#include "sm90/backward/instances.hpp"
#include "sm90/backward/kernel.cuh"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_d64_bf16_deterministic(const MainParameters& parameters, std::int32_t blocks, cudaStream_t stream) {
  return launch_main<d64_bf16_deterministic>(parameters, blocks, stream);
}

}  // namespace flashmask::sm90::backward_pass
