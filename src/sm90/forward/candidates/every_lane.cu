#include "sm90/forward/candidates/configs.hpp"
#include "sm90/forward/launch.cuh"

namespace flashmask::sm90::forward_pass {

struct Candidate_every_lane {
  static constexpr ForwardConfig config = every_lane();
};

cudaError_t launch_every_lane(const ForwardParameters& p, std::int32_t grid, cudaStream_t stream) {
  return launch_instance<Candidate_every_lane>(p, grid, stream);
}

}  // namespace flashmask::sm90::forward_pass
