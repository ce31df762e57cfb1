// Role of warpgroup 2: dQ^T = K^T dS^T of every tile, 64 elements of head_dim at a time, added to the float32 workspace
// straight from the accumulators. A warpgroup of its own, because a reduction holds its source registers until the SM's
// way out (16 to 18 bytes a clock) has taken them.
#pragma once

#include <cstdint>

#include "sm90/backward/dq_fragment.hpp"
#include "sm90/backward/operand.cuh"
#include "sm90/backward/parameters.hpp"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/wait.cuh"
#include "sm90/layout/descriptor.hpp"
#include "sm90/ptx/bulk_copy.cuh"
#include "sm90/ptx/cluster.cuh"
#include "sm90/ptx/shared_address.cuh"
#include "sm90/ptx/warp.cuh"
#include "sm90/ptx/wgmma.cuh"

namespace flashmask::sm90::backward_pass {

/// Pause between two reductions of a warp. Issued in one burst they fill the queue of the load/store unit, and every
/// access of the column warpgroups to shared memory waits behind them; spread out, all kernels gain 2 to 3%
/// (docs/backward.md).
inline constexpr std::uint32_t reduction_pause_cycles = 30;

template <BackwardConfig C>
struct QueryGradient {
  using Memory = SharedMemory<C>;

  float sum[32];  // dQ^T: 64 elements of head_dim x 64 rows
  const MainParameters& p;
  Memory& memory;

  __device__ __forceinline__ QueryGradient(const MainParameters& parameters, Memory& shared)
      : p(parameters), memory(shared) {
#pragma unroll
    for (int i = 0; i < 32; ++i) sum[i] = 0.0F;
  }

  __device__ __forceinline__ void arrive(std::uint64_t* barriers, std::uint32_t stage) {
    __syncwarp();  // what the other lanes read comes before the arrival
    if (C.every_lane_arrives || ptx::elect_one()) ptx::mbarrier_arrive(ptx::shared_address(barriers + stage));
  }

  /// sum (+)= 64 elements of head_dim of 128 keys x their dS.
  __device__ __forceinline__ void multiply(const std::uint8_t* keys, const std::uint8_t* ds, bool accumulate) {
    const std::uint64_t a = layout::mn_major_descriptor(ptx::shared_address(keys), block_columns);
    const std::uint64_t b = layout::k_major_descriptor(ptx::shared_address(ds));
#pragma unroll
    for (std::uint32_t i = 0; i < block_columns / 16; ++i) {
      ptx::wgmma<operand_of(C), ptx::Major::mn, ptx::Major::k>(
          sum, a + layout::mn_major_step(i), b + layout::k_major_step(i, block_rows), accumulate || i != 0);
    }
  }
  [[nodiscard]] __device__ __forceinline__ const std::uint8_t* key_half(std::uint32_t key, std::uint32_t half) const {
    return memory.k[key] + half * block_columns * layout::row_bytes;
  }
  __device__ __forceinline__ void pin_sum() {
#pragma unroll
    for (int i = 0; i < 32; ++i) ptx::pin(sum[i]);
  }

  __device__ __forceinline__ void add(std::int32_t dq_tile, std::int32_t half) {
    float* const tile = p.rows.dq_sum + static_cast<std::int64_t>(dq_tile) * (block_rows * C.head_dim) +
                        dq_fragment_offset(half, 0, static_cast<std::int32_t>(ptx::thread_index() % 128));
#pragma unroll
    for (int quad = 0; quad < 8; ++quad) {
      ptx::reduce_add_v4(tile + dq_fragment_offset(0, quad, 0), sum[4 * quad], sum[4 * quad + 1], sum[4 * quad + 2],
                         sum[4 * quad + 3]);
      const std::uint64_t start = ptx::cycle_counter();
      while (ptx::cycle_counter() - start < reduction_pause_cycles) {
      }
    }
  }

  __device__ __forceinline__ void run() {
    for (std::uint32_t tile = 0;; ++tile) {
      const std::uint32_t stage = tile % Memory::stages;
      wait_for(ptx::shared_address(&memory.full_ds[stage]), tile / Memory::stages & 1U, p.error);
      std::int32_t w[4];
      ptx::load_shared_v4(ptx::shared_address(&memory.words[tile % Memory::word_slots]), w);
      const auto flags = static_cast<std::uint32_t>(__shfl_sync(~0U, w[1], 0));
      if ((flags & tile_flag::end) != 0) return;
      const std::uint32_t key = buffer_of(flags, Memory::key_stages);
      if constexpr (C.paired) {
        add_pair(tile, flags, key, w[3]);
      } else if constexpr (C.accumulate_dq) {
#pragma unroll
        for (std::uint32_t half = 0; half < C.halves(); ++half) {
          pin_sum();
          ptx::wgmma_fence();
          multiply(key_half(key, half), memory.ds[stage][0], false);
          ptx::wgmma_commit();
          ptx::wgmma_wait<0>();
          pin_sum();
          if (half + 1 == C.halves()) release(flags, key, stage);
          add(w[3], static_cast<std::int32_t>(half));
        }
      } else {
        release(flags, key, stage);
      }
    }
  }

  /// Paired: this CTA's half of head_dim, or every second tile, over the columns of both, with the other CTA's dS,
  /// which that one sends as soon as it is stored.
  __device__ __forceinline__ void add_pair(std::uint32_t tile, std::uint32_t flags, std::uint32_t key,
                                           std::int32_t dq_tile) {
    const std::uint32_t stage = tile % Memory::stages;
    const std::uint32_t rank = ptx::cluster_rank();
    if (C.alternates() && stage != rank) return release(flags, key, stage);  // the other CTA's tile
    const std::uint32_t half = C.alternates() ? 0 : rank;
    pin_sum();
    ptx::wgmma_fence();
    multiply(key_half(key, half), memory.ds[stage][0], false);
    ptx::wgmma_commit();
    wait_for(ptx::shared_address(&memory.pair.full_ds[stage]), tile / Memory::stages & 1U, p.error);
    ptx::wgmma_fence();
    multiply(memory.peer_k[key], memory.peer_ds[stage % Memory::peer_stages][0], true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    pin_sum();
    __syncwarp();
    if (C.every_lane_arrives || ptx::elect_one()) {
      // The other CTA may overwrite what it sent, and send the next one.
      ptx::mbarrier_arrive_remote(ptx::shared_address(memory.empty_ds + stage), rank ^ 1U);
    }
    release(flags, key, stage);
    add(dq_tile, static_cast<std::int32_t>(half));
  }

  /// dS has been read; so has K after the last tile of its block.
  __device__ __forceinline__ void release(std::uint32_t flags, std::uint32_t key, std::uint32_t stage) {
    arrive(memory.empty_ds, stage);
    if ((flags & tile_flag::last) != 0) arrive(memory.empty_k, key);
  }
};

}  // namespace flashmask::sm90::backward_pass
