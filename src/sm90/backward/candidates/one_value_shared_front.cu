#include "sm90/backward/candidates/candidates.hpp"
#include "sm90/backward/kernel.cuh"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_one_value_shared_front(const MainParameters& parameters, std::int32_t blocks, cudaStream_t stream) {
  return launch_main<one_value_shared_front>(parameters, blocks, stream);
}

}  // namespace flashmask::sm90::backward_pass
