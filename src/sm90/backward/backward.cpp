// The public backward: validates, then describes the call for launch.cpp.
#include <cmath>

#include "core/check.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/backward/launch.hpp"
#include "sm90/sync/wait_site.hpp"
#include "sm90/validate.hpp"

namespace flashmask::sm90 {
std::size_t backward_workspace_bytes(const AttentionShape& shape, const MaskShape& mask, bool deterministic) {
  check_shape(shape);
  return backward_pass::workspace_layout(shape, mask.batch * mask.heads, deterministic).bytes;
}

void check_backward_workspace(const void* workspace, void* stream) {
  const std::uint32_t error = backward_pass::read_error(workspace, static_cast<cudaStream_t>(stream));
  if (error != 0) {
    core::fail(ErrorCode::timeout, "the sm90 backward gave up waiting ({}): its gradients are wrong",
               describe_wait(error));
  }
}

std::uint32_t backward_complete_count(const AttentionShape& shape, std::int64_t chunk_columns, std::int64_t chunk) {
  core::check(chunk_columns > 0, "chunk_columns must be positive, got {}", chunk_columns);
  return backward_pass::complete_count(shape, static_cast<std::int32_t>(chunk_columns), chunk);
}

void backward(const BackwardArguments& a) {
  validate(a);
  if (a.shape.batch == 0) return;
  backward_pass::BackwardCall call;
  call.shape = a.shape;
  call.map = *a.map;
  call.q = a.q, call.k = a.k, call.v = a.v, call.out = a.out, call.dout = a.dout;
  call.lse = a.lse;
  call.dq = a.dq, call.dk = a.dk, call.dv = a.dv;
  call.scale = a.scale.value_or(1.0F / std::sqrt(static_cast<float>(a.shape.head_dim)));
  call.deterministic = a.deterministic;
  call.order = a.order;
  if (a.completion) call.signal = {a.completion->counts, static_cast<std::int32_t>(a.completion->chunk_columns)};
  backward_pass::queue_backward(call, a.workspace, static_cast<cudaStream_t>(a.stream));
}

}  // namespace flashmask::sm90
