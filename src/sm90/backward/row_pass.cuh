// dQ of the deterministic mode: row tiles stationary, columns inner, no reduction into global memory, so every sum is
// added in one order. S and dP are computed a second time (seven products instead of five).
//
// A block owns 64 rows of one query head. Warpgroups 0 and 1 take the left and right 64 columns of every column block,
// each into a dQ of its own; the two are added at the end. One thread of warpgroup 2 loads.
#pragma once

#include <cstdint>

#include "sm90/backward/gradient_store.cuh"
#include "sm90/backward/operand.cuh"
#include "sm90/backward/parameters.hpp"
#include "sm90/backward/row_pass.hpp"
#include "sm90/backward/wait.cuh"
#include "sm90/layout/descriptor.hpp"
#include "sm90/layout/fragment.hpp"
#include "sm90/load_kernels.hpp"
#include "sm90/ptx/fence.cuh"
#include "sm90/ptx/shared_address.cuh"
#include "sm90/ptx/tensor_copy.cuh"
#include "sm90/ptx/warp.cuh"
#include "sm90/ptx/wgmma.cuh"

namespace flashmask::sm90::backward_pass {

template <BackwardConfig C>
struct RowMemory {
  static constexpr std::uint32_t stages = 2;
  alignas(1024) std::uint8_t q[C.tile_bytes(block_rows)];
  alignas(1024) std::uint8_t dout[C.tile_bytes(block_rows)];
  alignas(1024) std::uint8_t k[stages][C.tile_bytes(block_columns)];
  alignas(1024) std::uint8_t v[stages][C.tile_bytes(block_columns)];
  alignas(16) float partner[C.head_dim / 2][warpgroup_threads];  ///< dQ of warpgroup 1 on its way to warpgroup 0
  std::int32_t block[stages];                                    ///< column block, -1: no more
  std::uint32_t partial[stages];
  alignas(8) std::uint64_t full_rows;
  std::uint64_t full[stages], empty[stages];
  std::uint64_t full_partner;  ///< one arrival a warp of warpgroup 1
};

/// The row tile of a block of the grid.
struct RowPlace {
  std::int32_t batch, query_head, tile, list;
};

FLASHMASK_HOST_DEVICE inline RowPlace row_place(const RowParameters& p, std::int64_t item) {
  const Extents& e = p.extents;
  const std::int32_t sharing = e.query_heads / e.mask_heads * (e.mask_batch == 1 ? e.batch : 1);
  const std::int32_t list = p.order[item / sharing];
  const auto head = static_cast<std::int32_t>(item % sharing);
  const std::int32_t per_mask_head = e.query_heads / e.mask_heads;
  const std::int32_t matrix = list / e.row_tiles;
  return {e.mask_batch == 1 ? head / per_mask_head : matrix / e.mask_heads,
          matrix % e.mask_heads * per_mask_head + head % per_mask_head, list % e.row_tiles, list};
}

template <BackwardConfig C>
__device__ void copy_rows(const CUtensorMap& map, std::int32_t copies, std::uint32_t to, std::uint32_t half_bytes,
                          std::uint32_t barrier, std::int32_t position, std::int32_t head, std::int32_t batch) {
  ptx::tensor_load(to, &map, barrier, 0, position, 0, head, batch);
  if (C.halves() == 2 && copies == 2) ptx::tensor_load(to + half_bytes, &map, barrier, 64, position, 0, head, batch);
}

template <BackwardConfig C>
__device__ void load_row_tile(const RowParameters& p, RowMemory<C>& memory, const RowPlace& place) {
  constexpr std::uint32_t tile_bytes = C.tile_bytes(block_rows);
  constexpr std::uint32_t kv_bytes = C.tile_bytes(block_columns);
  constexpr std::uint32_t half = block_rows * layout::row_bytes;
  const std::int32_t kv_head = place.query_head / p.extents.group();
  const std::uint32_t rows_barrier = ptx::shared_address(&memory.full_rows);
  ptx::mbarrier_arrive_expect_tx(rows_barrier, 2 * tile_bytes);
  copy_rows<C>(p.q, p.copies, ptx::shared_address(memory.q), half, rows_barrier, place.tile * block_rows,
               place.query_head, place.batch);
  copy_rows<C>(p.dout, p.copies, ptx::shared_address(memory.dout), half, rows_barrier, place.tile * block_rows,
               place.query_head, place.batch);
  std::uint32_t n = 0;
  const auto take_slot = [&](std::int32_t block, std::uint32_t partial) {
    const std::uint32_t stage = n % RowMemory<C>::stages;
    wait_for(ptx::shared_address(&memory.empty[stage]), (n / RowMemory<C>::stages & 1U) ^ 1U, p.error);
    memory.block[stage] = block;
    memory.partial[stage] = partial;
    ++n;
    return stage;
  };
  const std::int32_t begin = p.run_begin[place.list];
  for (std::int32_t i = 0; i < p.run_count[place.list]; ++i) {
    const Run run = p.runs[begin + i];
    for (std::int32_t block = run.first; block < run.first + run.count; ++block) {
      const std::uint32_t stage = take_slot(block, has_partial(run.classes) ? 1U : 0U);
      const std::uint32_t barrier = ptx::shared_address(&memory.full[stage]);
      ptx::mbarrier_arrive_expect_tx(barrier, 2 * kv_bytes);
      copy_rows<C>(p.k, p.copies, ptx::shared_address(memory.k[stage]), 2 * half, barrier, block * block_columns,
                   kv_head, place.batch);
      copy_rows<C>(p.v, p.copies, ptx::shared_address(memory.v[stage]), 2 * half, barrier, block * block_columns,
                   kv_head, place.batch);
    }
  }
  ptx::mbarrier_arrive(ptx::shared_address(&memory.full[take_slot(-1, 0)]));
}

/// One warpgroup's half of every column block.
template <BackwardConfig C>
struct RowGradient {
  static constexpr ptx::Operand operand = operand_of(C);
  static constexpr std::uint32_t head_steps = static_cast<std::uint32_t>(C.head_dim) / 16;

  float s[32], dp[32];
  float dq[C.head_dim / 2];
  std::uint32_t packed[16];
  float lse[2], delta[2];  // -LSE / scale and -D of this thread's two rows
  const RowParameters& p;
  RowMemory<C>& memory;
  RowPlace place;
  std::uint32_t group;

  __device__ __forceinline__ RowGradient(const RowParameters& parameters, RowMemory<C>& shared, const RowPlace& at,
                                         std::uint32_t warpgroup)
      : p(parameters), memory(shared), place(at), group(warpgroup) {
#pragma unroll
    for (int i = 0; i < C.head_dim / 2; ++i) dq[i] = 0.0F;
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i] = dp[i] = 0.0F;
    const std::int64_t flat =
        (static_cast<std::int64_t>(place.batch) * p.extents.query_heads + place.query_head) * p.extents.row_tiles +
        place.tile;
    const float* const stats = p.stats + flat * stats_floats + layout::accumulator_row(threadIdx.x % 128, 0);
#pragma unroll
    for (int b = 0; b < 2; ++b) lse[b] = stats[8 * b], delta[b] = stats[block_rows + 8 * b];
  }

  /// scores = rows (Q or dO) x columns^T (K or V), both K-major.
  __device__ __forceinline__ void issue(float (&scores)[32], const std::uint8_t* rows, const std::uint8_t* columns) {
    const std::uint64_t a = layout::k_major_descriptor(ptx::shared_address(rows));
    const std::uint64_t b = layout::k_major_descriptor(ptx::shared_address(columns)) + group * layout::row_step(64);
#pragma unroll
    for (std::uint32_t i = 0; i < head_steps; ++i) {
      ptx::wgmma<operand, ptx::Major::k, ptx::Major::k>(scores, a + layout::k_major_step(i, block_rows),
                                                        b + layout::k_major_step(i, block_columns), i != 0);
    }
  }

  /// P in place, dS = P (dP - D) packed as an A operand.
  __device__ __forceinline__ void compute_ds(std::int32_t block, bool partial) {
    const std::uint32_t thread = threadIdx.x % warpgroup_threads;
    const std::int32_t row = place.tile * block_rows + static_cast<std::int32_t>(layout::accumulator_row(thread, 0));
    const std::int32_t matrix = place.list / p.extents.row_tiles;
    const int4* const column = p.intervals +
                               (static_cast<std::int64_t>(matrix) * p.extents.column_blocks + block) * block_columns +
                               group * 64 + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int b = i >> 1 & 1;
      float probability = ptx::exp2_approx((s[i] + lse[b]) * p.scale_log2);
      if (partial) {
        const int4 hidden = __ldg(column + (i >> 2) * 8 + (i & 1));
        const std::int32_t r = row + 8 * b;
        if ((r >= hidden.x && r < hidden.y) || (r >= hidden.z && r < hidden.w)) probability = 0.0F;
      }
      s[i] = probability * (dp[i] + delta[b]);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) packed[i] = pack_pair<C>(s[2 * i], s[2 * i + 1]);
  }

  __device__ __forceinline__ void pin_all() {
#pragma unroll
    for (int i = 0; i < 32; ++i) ptx::pin(s[i]), ptx::pin(dp[i]);
#pragma unroll
    for (int i = 0; i < 16; ++i) ptx::pin(packed[i]);
#pragma unroll
    for (int i = 0; i < C.head_dim / 2; ++i) ptx::pin(dq[i]);
  }

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < 16; ++i) packed[i] = 0;
    wait_for(ptx::shared_address(&memory.full_rows), 0, p.error);
    for (std::uint32_t n = 0;; ++n) {
      const std::uint32_t stage = n % RowMemory<C>::stages;
      wait_for(ptx::shared_address(&memory.full[stage]), n / RowMemory<C>::stages & 1U, p.error);
      const std::int32_t block = __shfl_sync(~0U, memory.block[stage], 0);
      const bool partial = __shfl_sync(~0U, memory.partial[stage], 0) != 0;
      if (block < 0) break;
      pin_all();
      ptx::wgmma_fence();
      issue(s, memory.q, memory.k[stage]);
      issue(dp, memory.dout, memory.v[stage]);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      pin_all();
      compute_ds(block, partial);
      pin_all();
      ptx::wgmma_fence();
      const std::uint64_t b = layout::mn_major_descriptor(ptx::shared_address(memory.k[stage]), block_columns) +
                              group * layout::row_step(64);
#pragma unroll
      for (std::uint32_t i = 0; i < 4; ++i) {
        ptx::wgmma<operand, ptx::Major::mn>(dq, packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3],
                                            b + layout::mn_major_step(i), true);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      pin_all();
      __syncwarp();
      if (C.every_lane_arrives || ptx::elect_one()) ptx::mbarrier_arrive(ptx::shared_address(&memory.empty[stage]));
    }
    finish();
  }

  /// Warpgroup 0 adds warpgroup 1's part to its own, always in this order, and writes.
  __device__ __forceinline__ void finish() {
    const std::uint32_t thread = threadIdx.x % warpgroup_threads;
    const std::uint32_t barrier = ptx::shared_address(&memory.full_partner);
    if (group == 1) {
#pragma unroll
      for (int i = 0; i < C.head_dim / 2; ++i) memory.partner[i][thread] = dq[i];
      __syncwarp();
      if (C.every_lane_arrives || ptx::elect_one()) ptx::mbarrier_arrive(barrier);
      return;
    }
    wait_for(barrier, 0, p.error);
#pragma unroll
    for (int i = 0; i < C.head_dim / 2; ++i) dq[i] += memory.partner[i][thread];
    const Destination to{p.dq.at(place.batch, place.tile * block_rows, place.query_head), p.dq.position_stride,
                         p.extents.rows - place.tile * block_rows, p.extents.head_dim};
    store_gradient<C>(to, dq, p.scale);
  }
};

template <BackwardConfig C>
__global__ void __launch_bounds__(3 * warpgroup_threads, 1)
    row_kernel(const __grid_constant__ RowParameters p, BackwardConfig) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  RowMemory<C>& memory = *reinterpret_cast<RowMemory<C>*>(shared);
  const std::uint32_t warp = __shfl_sync(~0U, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(ptx::shared_address(&memory.full_rows), 1);
    ptx::mbarrier_init(ptx::shared_address(&memory.full_partner), 4 * C.warp_arrivals());
    for (std::uint32_t i = 0; i < RowMemory<C>::stages; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&memory.full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&memory.empty[i]), 8 * C.warp_arrivals());
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const RowPlace place = row_place(p, blockIdx.x);
  if (warp >= 8) {
    ptx::registers_decrease<40>();
    if (threadIdx.x == 2 * warpgroup_threads) load_row_tile<C>(p, memory, place);
  } else {
    ptx::registers_increase<232>();  // 2 x 232 + 40 = 3 x 168, what the block is launched with
    RowGradient<C> role(p, memory, place, warp / 4);
    role.run();
  }
}

/// Queues the row pass; returns CUDA's status.
template <BackwardConfig C>
cudaError_t launch_rows(const RowParameters& parameters, cudaStream_t stream) {
  constexpr std::size_t bytes = sizeof(RowMemory<C>);
  static_assert(bytes <= shared_memory_limit, "the tiles do not fit into shared memory");
  const cudaError_t status =
      cudaFuncSetAttribute(row_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (status != cudaSuccess) return status;
  const Extents& e = parameters.extents;
  const std::int64_t blocks = std::int64_t{e.batch} * e.query_heads * e.row_tiles;
  if (blocks == 0) return load_kernel(row_kernel<C>);
  row_kernel<C><<<static_cast<unsigned>(blocks), 3 * warpgroup_threads, bytes, stream>>>(parameters, C);
  return cudaGetLastError();
}

}  // namespace flashmask::sm90::backward_pass
