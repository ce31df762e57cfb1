#include "sm90/backward/instances.hpp"
#include "sm90/backward/kernel.cuh"
#include "sm90/backward/row_pass.cuh"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_d64_f16_deterministic(const MainParameters& parameters, std::int32_t blocks, cudaStream_t stream) {
  return launch_main<d64_f16_deterministic>(parameters, blocks, stream);
}

cudaError_t launch_rows_d64_f16(const RowParameters& parameters, cudaStream_t stream) {
  return launch_rows<d64_f16_deterministic>(parameters, stream);
}

}  // namespace flashmask::sm90::backward_pass
