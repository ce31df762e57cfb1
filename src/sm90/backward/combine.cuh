// After the main kernel of a call with split groups: dK and dV are the sums of their parts, added in
// ascending order.
#pragma once

#include <cstdint>

#include "sm90/backward/gradient_store.cuh"
#include "sm90/backward/instances.hpp"
#include "sm90/backward/split.hpp"
#include "sm90/backward/work_list.cuh"
#include "sm90/load_kernels.hpp"

namespace flashmask::sm90::backward_pass {

/// gradient += this thread's accumulators of one part.
template <BackwardConfig C>
__device__ __forceinline__ void add_part(const float* sums, float (&gradient)[C.head_dim / 2]) {
  const float* const from = sums + part_fragment_offset(0, static_cast<std::int32_t>(threadIdx.x));
#pragma unroll
  for (int quad = 0; quad < C.head_dim / 8; ++quad) {
    const float4 v = *reinterpret_cast<const float4*>(from + part_fragment_offset(quad, 0));
    gradient[4 * quad] += v.x;
    gradient[4 * quad + 1] += v.y;
    gradient[4 * quad + 2] += v.z;
    gradient[4 * quad + 3] += v.w;
  }
}

/// Sum over the parts that saw the block of this thread's accumulators.
template <BackwardConfig C>
__device__ __forceinline__ void add_parts(const CombineParameters& p, const float* sums, std::int32_t batch,
                                          std::int32_t head, std::int32_t column, float (&gradient)[C.head_dim / 2]) {
  const std::int32_t block = column / p.extents.work_columns;
#pragma unroll
  for (int i = 0; i < C.head_dim / 2; ++i) gradient[i] = 0.0F;
  for (std::int32_t part = head * p.parts; part < (head + 1) * p.parts; ++part) {
    if (last_head(p.extents, p.lists, {batch, part, block, 0}) < 0) continue;  // nothing was written
    add_part<C>(sums + part_offset(p.extents, C.head_dim, batch, part, column), gradient);
  }
}

/// One warpgroup for a piece of one KV head.
template <BackwardConfig C>
__global__ void __launch_bounds__(warpgroup_threads)
    combine_kernel(const __grid_constant__ CombineParameters p, BackwardConfig) {
  const Extents& e = p.extents;
  const auto item = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t pieces = pieces_of_head(e);
  const std::int32_t column = item % pieces * piece_columns;
  const std::int32_t block = column / e.work_columns;
  const std::int32_t heads = e.kv_heads / p.parts;
  const std::int32_t head = item / pieces % heads;
  const std::int32_t batch = item / pieces / heads;
  bool seen = false;
  for (std::int32_t part = head * p.parts; part < (head + 1) * p.parts; ++part) {
    seen |= last_head(e, p.lists, {batch, part, block, 0}) >= 0;
  }
  if (!seen) return;  // prepare.cu has written zeros
  float gradient[C.head_dim / 2];
  add_parts<C>(p, p.part_sums, batch, head, column, gradient);
  Destination to{p.dv.at(batch, column, head), p.dv.position_stride, e.columns - column, e.head_dim};
  store_gradient<C>(to, gradient, 1.0F);
  add_parts<C>(p, p.part_sums + part_floats(e, C.head_dim), batch, head, column, gradient);
  to.first = p.dk.at(batch, column, head);
  to.position_stride = p.dk.position_stride;
  store_gradient<C>(to, gradient, p.scale);
  const std::int32_t half_block = column / block_columns * block_columns;  // of a last pair it may lie beyond the end
  if (p.signal.done != nullptr && half_block < e.columns) signal_block(p.signal, half_block, e.columns);
}

/// Queues the sums of groups; returns CUDA's status.
template <BackwardConfig C>
cudaError_t launch_combine(const CombineParameters& parameters, cudaStream_t stream) {
  const Extents& e = parameters.extents;
  const std::int64_t blocks = std::int64_t{e.batch} * (e.kv_heads / parameters.parts) * pieces_of_head(e);
  if (blocks == 0) return load_kernel(combine_kernel<C>);
  combine_kernel<C><<<static_cast<unsigned>(blocks), warpgroup_threads, 0, stream>>>(parameters, C);
  return cudaGetLastError();
}

}  // namespace flashmask::sm90::backward_pass
