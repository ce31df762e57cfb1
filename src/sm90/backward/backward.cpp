// The public backward: validates, then describes the call for launch.cpp.
#include <algorithm>
#include <cmath>

#include "core/check.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/backward/config.hpp"
#include "sm90/backward/launch.hpp"
#include "sm90/cuda_check.hpp"
#include "sm90/sync/wait_site.hpp"

namespace flashmask::sm90 {
namespace {

constexpr std::int64_t largest_head_dim = 128;
constexpr std::int64_t largest_count = (std::int64_t{1} << 31) - 65536;

void check_extents(const AttentionShape& s) {
  core::check(s.batch >= 0 && s.rows >= 0 && s.columns >= 0 && s.query_heads >= 1 && s.kv_heads >= 1,
              "extents must not be negative: batch {}, rows {}, columns {}, query_heads {}, kv_heads {}", s.batch,
              s.rows, s.columns, s.query_heads, s.kv_heads);
  core::check(s.query_heads % s.kv_heads == 0, "query_heads ({}) must be a multiple of kv_heads ({})", s.query_heads,
              s.kv_heads);
  if (s.head_dim < 8 || s.head_dim > largest_head_dim || s.head_dim % 8 != 0) {
    core::fail(ErrorCode::unsupported, "head_dim must be a multiple of 8 from 8 to {} on sm90, got {}",
               largest_head_dim, s.head_dim);
  }
}

void check_map(const TileMapView* map, const AttentionShape& s) {
  core::check(map != nullptr, "map is null; build a DeviceMask with backward_tile() and pass its view()");
  core::check(map->block_m == backward_pass::block_rows && map->block_n == backward_pass::block_columns,
              "the tile map has tiles of {}x{}, the backward needs {}x{}; build it with backward_tile()", map->block_m,
              map->block_n, backward_pass::block_rows, backward_pass::block_columns);
  core::check(map->rows == s.rows && map->columns == s.columns,
              "the tile map speaks of {} rows and {} columns, the call of {} and {}", map->rows, map->columns, s.rows,
              s.columns);
  core::check(map->batch == 1 || map->batch == s.batch, "mask batch must be 1 or {}, got {}", s.batch, map->batch);
  core::check(map->heads == 1 || map->heads == s.kv_heads || map->heads == s.query_heads,
              "mask heads must be 1, kv_heads ({}) or query_heads ({}), got {}", s.kv_heads, s.query_heads, map->heads);
  core::check(s.batch * s.query_heads * map->row_tiles < largest_count &&
                  s.batch * s.query_heads * map->column_blocks < largest_count,
              "batch x query_heads x tiles = {} exceeds 2^31",
              s.batch * s.query_heads * std::max(map->row_tiles, map->column_blocks));
}

void check_tensor(const char* name, const TensorView& tensor, DType dtype) {
  core::check(tensor.data != nullptr, "{} is null; pass device memory", name);
  core::check(tensor.dtype == dtype, "{} has another dtype than q; all tensors of a call share one", name);
  core::check(tensor.strides[3] == 1, "{}: the stride of head_dim must be 1, got {}", name, tensor.strides[3]);
  core::check(reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0,
              "{}: the data pointer must be aligned to 16 bytes, got {}", name, tensor.data);
  for (int axis = 0; axis < 3; ++axis) {
    core::check(tensor.strides[axis] % 8 == 0,
                "{}: stride {} of axis {} must be a multiple of 8 elements (16 bytes); copy the tensor or pad head_dim",
                name, tensor.strides[axis], axis);
  }
}

}  // namespace

TileShape backward_tile() {
  return {backward_pass::block_rows, backward_pass::block_columns};
}

std::size_t backward_workspace_bytes(const AttentionShape& shape, const MaskShape& mask, bool deterministic) {
  check_extents(shape);
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

void validate(const BackwardArguments& a) {
  const AttentionShape& s = a.shape;
  check_extents(s);
  if (a.q.dtype != DType::bf16 && a.q.dtype != DType::f16) {
    core::fail(ErrorCode::unsupported, "sm90 takes bf16 and f16 tensors; convert q, k, v or use the cpu backend");
  }
  check_map(a.map, s);
  core::check(!a.scale || (*a.scale > 0 && std::isfinite(*a.scale)), "scale must be positive and finite, got {}",
              a.scale.value_or(0));
  core::check(a.workspace != nullptr && reinterpret_cast<std::uintptr_t>(a.workspace) % 256 == 0,
              "workspace must be backward_workspace_bytes() of device memory aligned to 256 bytes, got {}",
              a.workspace);
  core::check(!a.completion || (a.completion->counts != nullptr && a.completion->chunk_columns > 0),
              "completion needs counts and a positive chunk_columns, got {}",
              a.completion ? a.completion->chunk_columns : 0);
  if (s.batch == 0) return;
  if (s.rows > 0) {
    core::check(a.lse != nullptr, "lse is null; pass the forward's float32 [batch][query_heads][rows]");
    check_tensor("q", a.q, a.q.dtype);
    check_tensor("out", a.out, a.q.dtype);
    check_tensor("dout", a.dout, a.q.dtype);
    check_tensor("dq", a.dq, a.q.dtype);
  }
  if (s.columns > 0) {
    check_tensor("k", a.k, a.q.dtype);
    check_tensor("v", a.v, a.q.dtype);
    check_tensor("dk", a.dk, a.q.dtype);
    check_tensor("dv", a.dv, a.q.dtype);
  }
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
