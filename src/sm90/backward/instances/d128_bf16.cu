#include "sm90/backward/combine.cuh"
#include "sm90/backward/instances.hpp"
#include "sm90/backward/kernel.cuh"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_d128_bf16(const MainParameters& parameters, std::int32_t blocks, cudaStream_t stream) {
  return launch_main<d128_bf16>(parameters, blocks, stream);
}

cudaError_t launch_combine_d128_bf16(const CombineParameters& parameters, cudaStream_t stream) {
  return launch_combine<d128_bf16>(parameters, stream);
}

}  // namespace flashmask::sm90::backward_pass
