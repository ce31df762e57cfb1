#include "sm90/backward/candidates/candidates.hpp"
#include "sm90/backward/combine.cuh"
#include "sm90/backward/kernel.cuh"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_split_tail(const MainParameters& parameters, std::int32_t blocks, cudaStream_t stream) {
  return launch_main<split_tail>(parameters, blocks, stream);
}

cudaError_t launch_split_tail_combine(const CombineParameters& parameters, cudaStream_t stream) {
  return launch_combine_tail<split_tail>(parameters, stream);
}

}  // namespace flashmask::sm90::backward_pass
