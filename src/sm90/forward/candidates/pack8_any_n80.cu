#include "sm90/forward/candidates/configs.hpp"
#include "sm90/forward/launch.cuh"

namespace flashmask::sm90::forward_pass {

struct Candidate_pack8_any_n80 {
  static constexpr ForwardConfig config = form_of(80, 8, 5);
};

cudaError_t launch_pack8_any_n80(const ForwardParameters& p, std::int32_t grid, cudaStream_t stream) {
  return launch_instance<Candidate_pack8_any_n80>(p, grid, stream);
}

}  // namespace flashmask::sm90::forward_pass
