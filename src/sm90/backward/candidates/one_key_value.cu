#include "sm90/backward/candidates/candidates.hpp"
#include "sm90/backward/kernel.cuh"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_one_key_value(const MainParameters& parameters, std::int32_t blocks, cudaStream_t stream) {
  return launch_main<one_key_value>(parameters, blocks, stream);
}

}  // namespace flashmask::sm90::backward_pass
