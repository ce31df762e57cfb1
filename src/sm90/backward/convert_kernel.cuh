// The kernel after the main one: see convert.cuh.
#pragma once

#include "sm90/backward/config.hpp"
#include "sm90/backward/convert.cuh"
#include "sm90/backward/dq_fragment.hpp"
#include "sm90/backward/operand.cuh"

namespace flashmask::sm90::backward_pass {

/// One tile of 64 rows of one query head, through shared memory. Rows of 16 bytes of padding keep both the scattered
/// stores and the 16-byte loads free of bank conflicts.
template <bool Bf16, int HeadDim>
__global__ void __launch_bounds__(warpgroup_threads) convert_kernel(const __grid_constant__ ConvertParameters p) {
  constexpr int pitch = HeadDim + 8;
  __shared__ alignas(16) std::uint16_t rows[block_rows * pitch];
  const Extents& e = p.extents;
  const std::int64_t tile = blockIdx.x;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const float* const sum = p.dq_sum + tile * (block_rows * HeadDim);
#pragma unroll
  for (int half = 0; half < HeadDim / 64; ++half) {
#pragma unroll
    for (int quad = 0; quad < 8; ++quad) {
      float4 v = make_float4(0, 0, 0, 0);
      if (p.dq_sum != nullptr) v = *reinterpret_cast<const float4*>(sum + dq_fragment_offset(half, quad, thread));
      const std::uint32_t first = pack_pair_as<Bf16>(v.x * p.scale, v.y * p.scale);  // two rows, one element of dim
      const std::uint32_t second = pack_pair_as<Bf16>(v.z * p.scale, v.w * p.scale);
      std::uint16_t* const at = rows + dq_fragment_row(quad, thread, 0) * pitch + dq_fragment_dim(half, thread, 0);
      at[0] = static_cast<std::uint16_t>(first);
      at[pitch] = static_cast<std::uint16_t>(first >> 16);
      at[8] = static_cast<std::uint16_t>(second);
      at[pitch + 8] = static_cast<std::uint16_t>(second >> 16);
    }
  }
  __syncthreads();
  const std::int64_t head = tile / e.row_tiles;
  const auto b = static_cast<std::int32_t>(head / e.query_heads);
  const auto h = static_cast<std::int32_t>(head % e.query_heads);
  constexpr int pieces = HeadDim / 8;
#pragma unroll
  for (int i = thread; i < block_rows * pieces; i += warpgroup_threads) {
    const std::int64_t row = tile % e.row_tiles * block_rows + i / pieces;
    const std::int32_t dim = i % pieces * 8;
    if (row < e.rows && dim < e.head_dim) {
      *reinterpret_cast<uint4*>(p.dq.at(b, row, h) + dim) =
          *reinterpret_cast<const uint4*>(rows + i / pieces * pitch + dim);
    }
  }
}

}  // namespace flashmask::sm90::backward_pass
