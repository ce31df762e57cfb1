// The end of a row tile: O / sum through shared memory and TMA to global memory, LSE by plain stores. Every warp works
// on its own 16 rows, so no barrier is needed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sm90/forward/packing.hpp"
#include "sm90/forward/parameters.hpp"
#include "sm90/forward/shared_memory.hpp"
#include "sm90/forward/softmax.cuh"
#include "sm90/layout/fragment.hpp"
#include "sm90/ptx/bulk_copy.cuh"
#include "sm90/ptx/fence.cuh"
#include "sm90/ptx/matrix.cuh"
#include "sm90/ptx/tensor_copy.cuh"

namespace flashmask::sm90::forward_pass {

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFU, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFU, x, 2);
}

/// `warp` counts over all consumer warps; `first_row` is the mask row of the first of its 16 accumulator rows.
template <ForwardConfig C>
__device__ __forceinline__ void store_row_tile(const ForwardParameters& p, std::uint32_t shared, std::uint32_t warp,
                                               std::int32_t unit, std::int32_t first_row, const RowState& state,
                                               const Fragments<C>& f) {
  const std::uint32_t lane = ptx::lane_index();
  float inverse[2];
#pragma unroll
  for (std::int32_t r = 0; r < 2; ++r) {
    const float sum = quad_sum(state.sum[r]);
    const bool sees_nothing = !(sum > 0.0F);
    inverse[r] = sees_nothing ? 0.0F : 1.0F / sum;
    const PackedPlace place = in_strip(static_cast<std::int32_t>(lane / 4) + 8 * r, C.packed_heads);
    const std::int32_t row = first_row + place.row;
    if (lane % 4 == 0 && row < p.rows) {
      const std::int32_t head = unit * C.packed_heads + place.head;
      p.lse[static_cast<std::int64_t>(head) * p.rows + row] =
          sees_nothing ? -__builtin_huge_valf() : fmaf(state.maximum[r], p.scale, __logf(sum));
    }
  }
  // The previous tile's store must have read this warp's staging rows.
  if (lane == 0) ptx::bulk_wait_read<0>();
  __syncwarp();
  constexpr std::uint32_t half_bytes = 16 * layout::row_bytes;
  const std::uint32_t staging = shared + offsetof(SharedMemory<C>, out) + warp * C.halves() * half_bytes;
#pragma unroll
  for (std::uint32_t i = 0; i < C.head_dim / 16; ++i) {
    const float* o = f.o + 8 * i;
    ptx::stmatrix_x4(staging + layout::matrix_x4_offset(lane, 0, 16 * i, 16),
                     pack<C>(o[0] * inverse[0], o[1] * inverse[0]), pack<C>(o[2] * inverse[1], o[3] * inverse[1]),
                     pack<C>(o[4] * inverse[0], o[5] * inverse[0]), pack<C>(o[6] * inverse[1], o[7] * inverse[1]));
  }
  ptx::fence_proxy_async_shared();
  __syncwarp();
  if (lane == 0 && first_row < p.rows) {
    const std::int32_t batch = unit / p.query_heads;
    for (std::int32_t i = 0; i < p.copies; ++i) {
      const std::int32_t head = unit - batch * p.query_heads;
      const std::uint32_t source = staging + static_cast<std::uint32_t>(i) * half_bytes;
      if constexpr (C.packed_heads == 1) {
        ptx::tensor_store(&p.out, source, 64 * i, first_row, 0, head, batch);
      } else {
        ptx::tensor_store(&p.out, source, 64 * i, head * C.packed_heads, first_row, 0, batch);
      }
    }
    ptx::bulk_commit();
  }
}

}  // namespace flashmask::sm90::forward_pass
