#include "sm90/backward/candidates/candidates.hpp"
#include "sm90/backward/convert_kernel.cuh"
#include "sm90/backward/kernel.cuh"
#include "sm90/backward/prepare_kernel.cuh"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_dependent(const MainParameters& parameters, std::int32_t blocks, cudaStream_t stream) {
  return launch_main<dependent_launch>(parameters, blocks, stream);
}

cudaError_t launch_prepare_dependent(const PrepareParameters& parameters, cudaStream_t stream) {
  return launch_prepare_kernel<true>(parameters, stream);
}

cudaError_t launch_convert_dependent(const ConvertParameters& parameters, cudaStream_t stream) {
  return launch_convert_kernel<true>(parameters, stream);
}

}  // namespace flashmask::sm90::backward_pass
