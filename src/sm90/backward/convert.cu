#include "sm90/backward/convert_kernel.cuh"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_convert(const ConvertParameters& p, cudaStream_t stream) {
  return launch_convert_kernel<false>(p, stream);
}

}  // namespace flashmask::sm90::backward_pass
