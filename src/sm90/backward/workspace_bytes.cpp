// The public query of the workspace's size. Needs no CUDA, as validate() asks it on every machine.
#include "flashmask/sm90.hpp"
#include "sm90/backward/workspace.hpp"
#include "sm90/validate.hpp"

namespace flashmask::sm90 {

std::size_t backward_workspace_bytes(const AttentionShape& shape, const MaskShape& mask, bool deterministic) {
  check_shape(shape);
  check_mask_shape("the mask", mask, shape);
  return backward_pass::workspace_layout(shape, mask.batch * mask.heads, deterministic).bytes;
}

}  // namespace flashmask::sm90
