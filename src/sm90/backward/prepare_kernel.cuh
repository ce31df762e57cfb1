// The kernel before the main one: see prepare.cuh.
#pragma once

#include <math_constants.h>

#include <algorithm>

#include "sm90/backward/operand.cuh"
#include "sm90/backward/prepare.cuh"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/ptx/fence.cuh"

namespace flashmask::sm90::backward_pass {

inline constexpr std::int32_t prepare_threads = 256;

/// Sum of products of eight 16-bit elements.
__device__ inline float dot8(const uint4& a, const uint4& b, bool bf16) {
  const std::uint32_t x[4] = {a.x, a.y, a.z, a.w};
  const std::uint32_t y[4] = {b.x, b.y, b.z, b.w};
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 u = bf16 ? unpack_pair_as<true>(x[i]) : unpack_pair_as<false>(x[i]);
    const float2 v = bf16 ? unpack_pair_as<true>(y[i]) : unpack_pair_as<false>(y[i]);
    sum = fmaf(u.x, v.x, fmaf(u.y, v.y, sum));
  }
  return sum;
}

/// One tile of 64 rows of one query head: what S starts from, -LSE / scale (-inf where nothing is visible and beyond
/// the end, so that P = 0), what dP starts from, -D = -rowsum(dO * O), zeros for dQ. Stores first and all loads before
/// the first use: this is a stream of bytes.
template <int TileHeadDim>
__device__ void prepare_rows(const PrepareParameters& p, std::int32_t tile) {
  constexpr int lanes = TileHeadDim / 8;  // of 16 bytes a row
  constexpr int step = prepare_threads / lanes;
  const Extents& e = p.extents;
  const RowTensors& rows = p.rows;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  if (rows.dq_sum != nullptr) {
    auto* const sum = reinterpret_cast<float4*>(rows.dq_sum) + std::int64_t{tile} * (block_rows * TileHeadDim / 4);
#pragma unroll
    for (int i = 0; i < block_rows * TileHeadDim / 4 / prepare_threads; ++i)
      sum[i * prepare_threads + thread] = make_float4(0, 0, 0, 0);
  }
  const std::int32_t head = tile / e.row_tiles;
  const std::int32_t b = head / e.query_heads;
  const std::int32_t h = head % e.query_heads;
  const std::int32_t lane = thread % lanes;
  const std::int32_t first = thread / lanes;
  const std::int32_t row = tile % e.row_tiles * block_rows + first;
  uint4 o[block_rows / step], g[block_rows / step];
#pragma unroll
  for (int i = 0; i < block_rows / step; ++i) {
    o[i] = g[i] = make_uint4(0, 0, 0, 0);
    if (row + i * step >= e.rows || lane * 8 >= e.head_dim) continue;
    o[i] = __ldg(reinterpret_cast<const uint4*>(rows.out.at(b, row + i * step, h) + lane * 8));
    g[i] = __ldg(reinterpret_cast<const uint4*>(rows.dout.at(b, row + i * step, h) + lane * 8));
  }
  float* const stats = rows.stats + std::int64_t{tile} * stats_floats;
#pragma unroll
  for (int i = 0; i < block_rows / step; ++i) {
    float delta = dot8(o[i], g[i], p.bf16);
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2) delta += __shfl_xor_sync(~0U, delta, distance);
    if (lane != 0) continue;
    const std::int32_t r = row + i * step;
    const float lse = r < e.rows ? rows.lse[std::int64_t{head} * e.rows + r] : -CUDART_INF_F;
    const bool dead = lse == -CUDART_INF_F;
    stats[first + i * step] = dead ? -CUDART_INF_F : -lse / p.scale;
    stats[block_rows + first + i * step] = dead ? 0.0F : -delta;
  }
}

/// The intervals of one column block of one mask head, side by side.
__device__ inline void gather_intervals(const PrepareParameters& p, std::int32_t list) {
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t width = p.extents.work_columns;
  static_assert(prepare_threads >= 2 * block_columns);
  if (i >= width) return;
  const std::int64_t from = static_cast<std::int64_t>(list / p.extents.column_blocks) * p.map.padded_columns +
                            list % p.extents.column_blocks * width + i;
  p.intervals[static_cast<std::int64_t>(list) * width + i] =
      make_int4(p.map.lts[from], p.map.lte[from], p.map.uts[from], p.map.ute[from]);
}

/// dK = dV = 0 for a column block that no row of any query head of the group sees: the main kernel never visits it.
__device__ inline void clear_unseen(const PrepareParameters& p, std::int32_t item) {
  const Extents& e = p.extents;
  const std::int32_t block = item % e.column_blocks;
  const std::int32_t head = item / e.column_blocks % e.kv_heads;
  const std::int32_t b = item / e.column_blocks / e.kv_heads;
  for (std::int32_t g = 0; g < e.group(); ++g) {
    if (p.map.column_run_count[e.list(b, head * e.group() + g, block)] != 0) return;
  }
  const std::int32_t pieces = e.head_dim / 8;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < e.work_columns * pieces; i += prepare_threads) {
    const std::int32_t column = block * e.work_columns + i / pieces;
    if (column >= e.columns) break;
    *reinterpret_cast<uint4*>(p.dk.at(b, column, head) + i % pieces * 8) = make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4*>(p.dv.at(b, column, head) + i % pieces * 8) = make_uint4(0, 0, 0, 0);
  }
  if (p.signal.done == nullptr) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x != 0) return;
  // As often as the CTAs of the main kernel would.
  const std::int32_t end = min((block + 1) * e.work_columns, e.columns);
  for (std::int32_t first = block * e.work_columns; first < end; first += block_columns) {
    const std::int32_t last = min(first + block_columns, end) - 1;
    for (std::int32_t c = first / p.signal.chunk_columns; c <= last / p.signal.chunk_columns; ++c) {
      ptx::reduce_add_release(p.signal.done + c, column_warps);
    }
  }
}

__global__ void __launch_bounds__(prepare_threads) prepare_kernel(const __grid_constant__ PrepareParameters p) {
  const Extents& e = p.extents;
  const std::int32_t tiles = e.batch * e.query_heads * e.row_tiles;
  const auto i = static_cast<std::int32_t>(blockIdx.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  if (i == 0 && thread < counter_words) {
    p.counters[thread] = thread == waiting_word ? static_cast<std::uint32_t>(waiting_blocks(e, p.lists)) : 0;
  }
  if (i < tiles) {
    if (p.tile_head_dim == 128) {
      prepare_rows<128>(p, i);
    } else {
      prepare_rows<64>(p, i);
    }
    return;
  }
  const std::int32_t item = i - tiles;
  if (p.front != nullptr && thread == 0 && item < p.fronts) p.front[item] = 0;
  if (item < e.mask_batch * e.mask_heads * e.column_blocks) gather_intervals(p, item);
  if (item < e.batch * e.kv_heads * e.column_blocks) clear_unseen(p, item);
}

}  // namespace flashmask::sm90::backward_pass
