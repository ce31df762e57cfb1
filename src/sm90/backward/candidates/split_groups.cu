#include "sm90/backward/candidates/candidates.hpp"
#include "sm90/backward/combine.cuh"
#include "sm90/backward/kernel.cuh"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_split_groups(const MainParameters& parameters, std::int32_t blocks, cudaStream_t stream) {
  return launch_main<split_groups>(parameters, blocks, stream);
}

cudaError_t launch_split_groups_combine(const CombineParameters& parameters, cudaStream_t stream) {
  return launch_combine<split_groups>(parameters, stream);
}

}  // namespace flashmask::sm90::backward_pass
