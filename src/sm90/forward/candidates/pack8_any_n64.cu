#include "sm90/forward/candidates/configs.hpp"
#include "sm90/forward/launch.cuh"

namespace flashmask::sm90::forward_pass {

struct Candidate_pack8_any_n64 {
  static constexpr ForwardConfig config = form_of(64, 8, 4);
};

cudaError_t launch_pack8_any_n64(const ForwardParameters& p, std::int32_t grid, cudaStream_t stream) {
  return launch_instance<Candidate_pack8_any_n64>(p, grid, stream);
}

}  // namespace flashmask::sm90::forward_pass
