#include "sm90/backward/instances.hpp"
#include "sm90/backward/kernel.cuh"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_d64_f16_paired(const MainParameters& parameters, std::int32_t blocks, cudaStream_t stream) {
  return launch_main<d64_f16_paired>(parameters, blocks, stream);
}

}  // namespace flashmask::sm90::backward_pass
