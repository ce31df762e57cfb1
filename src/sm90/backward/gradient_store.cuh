// dK and dV leave from registers: a quad transposes its 8-element pieces so that every lane writes 16 bytes. No shared
// memory is touched, so nothing has to wait for the tiles of the next block.
#pragma once

#include <cstdint>

#include "sm90/backward/operand.cuh"
#include "sm90/backward/parameters.hpp"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/split.hpp"
#include "sm90/layout/fragment.hpp"
#include "sm90/ptx/fence.cuh"
#include "sm90/ptx/warp.cuh"

namespace flashmask::sm90::backward_pass {

/// 4 x 4 transpose over the lanes of a quad: lane q ends with word q of lanes 0 to 3.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&x)[4]) {
  const std::uint32_t lane = ptx::lane_index();
  const bool odd = (lane & 1U) != 0;
  const bool high = (lane & 2U) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(~0U, odd ? x[i] : x[i + 1], 1);
    x[i] = odd ? got : x[i];
    x[i + 1] = odd ? x[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(~0U, high ? x[i] : x[i + 2], 2);
    x[i] = high ? got : x[i];
    x[i + 2] = high ? x[i + 2] : got;
  }
}

/// Where 64 positions of one head go.
struct Destination {
  std::uint16_t* first;          ///< element 0 of position 0
  std::int64_t position_stride;  ///< elements
  std::int32_t positions;        ///< how many exist; the rest is not written
  std::int32_t head_dim;
};

/// Writes a warpgroup's 64 positions x head_dim of accumulators, times `factor`.
template <BackwardConfig C>
__device__ __forceinline__ void store_gradient(const Destination& to, const float (&gradient)[C.head_dim / 2],
                                               float factor) {
  const std::uint32_t thread = ptx::thread_index() % warpgroup_threads;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t position = static_cast<std::int32_t>(layout::accumulator_row(thread, 0)) + 8 * half;
    std::uint16_t* const row = to.first + position * to.position_stride;
#pragma unroll
    for (int piece = 0; piece < C.head_dim / 32; ++piece) {
      std::uint32_t x[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int i = 16 * piece + 4 * m + 2 * half;
        x[m] = pack_pair<C>(gradient[i] * factor, gradient[i + 1] * factor);
      }
      transpose_quad(x);
      const std::int32_t dim = piece * 32 + static_cast<std::int32_t>(thread % 4) * 8;
      if (position < to.positions && dim < to.head_dim) {
        *reinterpret_cast<uint4*>(row + dim) = make_uint4(x[0], x[1], x[2], x[3]);
      }
    }
  }
}

/// Writes a warpgroup's accumulators as they are, in fragment order.
template <BackwardConfig C>
__device__ __forceinline__ void store_part(float* sums, const float (&gradient)[C.head_dim / 2]) {
  auto* const to = reinterpret_cast<float4*>(
      sums + part_fragment_offset(0, static_cast<std::int32_t>(ptx::thread_index() % warpgroup_threads)));
#pragma unroll
  for (int quad = 0; quad < C.head_dim / 8; ++quad) {
    to[part_fragment_offset(quad, 0) / 4] =
        make_float4(gradient[4 * quad], gradient[4 * quad + 1], gradient[4 * quad + 2], gradient[4 * quad + 3]);
  }
}

/// Counts this warp's part of the block as complete in every chunk the block lies in.
__device__ __forceinline__ void signal_block(const ChunkSignal& signal, std::int32_t first_column,
                                             std::int32_t columns) {
  __syncwarp();
  if (ptx::lane_index() != 0) return;
  const std::int32_t last_column = min(first_column + block_columns, columns) - 1;
  for (std::int32_t c = first_column / signal.chunk_columns; c <= last_column / signal.chunk_columns; ++c) {
    __threadfence();
    ptx::reduce_add_release(signal.done + c, 1);
  }
}

}  // namespace flashmask::sm90::backward_pass
