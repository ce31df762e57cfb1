// The public backward: validates, then describes the call for launch.cpp.
#include <algorithm>
#include <cmath>

#include "core/check.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/backward/config.hpp"
#include "sm90/backward/launch.hpp"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/device/query.hpp"
#include "sm90/sync/wait_site.hpp"
#include "sm90/validate.hpp"

namespace flashmask::sm90 {
namespace {

/// Blocks of 128 columns that a 32-bit count can hold, column_warps times each.
constexpr std::int64_t largest_count = (std::int64_t{1} << 32) / backward_pass::column_warps;

}  // namespace

void check_backward_workspace(const void* workspace, void* stream) {
  check_backward_memory(workspace);
  require_hopper();
  const std::uint32_t error = backward_pass::read_error(workspace, static_cast<cudaStream_t>(stream));
  if (error != 0) {
    core::fail(ErrorCode::timeout, "the sm90 backward gave up waiting ({}): its gradients are wrong",
               describe_wait(error));
  }
}

std::uint32_t backward_complete_count(const AttentionShape& shape, std::int64_t chunk_columns, std::int64_t chunk) {
  check_shape(shape);
  check_chunk_columns("chunk_columns", chunk_columns);
  const std::int64_t chunks = (shape.columns + chunk_columns - 1) / chunk_columns;
  core::check(chunk >= 0 && chunk < chunks, "chunk is {}: {} columns have {} chunks of {}, counted from 0", chunk,
              shape.columns, chunks, chunk_columns);
  const std::int64_t blocks =
      std::min(chunk_columns, shape.columns) / backward_pass::block_columns + 2;  // no chunk touches more
  core::check(shape.batch * shape.kv_heads < largest_count / blocks,
              "batch x kv_heads x blocks of a chunk = {} x {} x {} count to more than 2^32; take smaller chunks",
              shape.batch, shape.kv_heads, blocks);
  return backward_pass::complete_count(shape, static_cast<std::int32_t>(chunk_columns), chunk);
}

void backward(const BackwardArguments& a) {
  validate(a);
  if (a.shape.batch == 0) return;
  require_hopper();
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
