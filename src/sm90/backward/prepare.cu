#include "sm90/backward/prepare_kernel.cuh"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_prepare(const PrepareParameters& p, cudaStream_t stream) {
  return launch_prepare_kernel<false>(p, stream);
}

}  // namespace flashmask::sm90::backward_pass
