// Role of warpgroup 2: dQ^T = K^T dS^T of every tile, added to the float32 workspace straight from the accumulators. A
// warpgroup of its own, because a reduction holds its source registers until the SM's way out (16 to 18 bytes a clock)
// has taken them. In pieces of 64 elements of head_dim x 32 rows with two sets of accumulators, so that one piece is
// multiplied while the one before drains.
#pragma once

#include <cstdint>

#include "sm90/backward/dq_fragment.hpp"
#include "sm90/backward/operand.cuh"
#include "sm90/backward/parameters.hpp"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/wait.cuh"
#include "sm90/layout/descriptor.hpp"
#include "sm90/ptx/bulk_copy.cuh"
#include "sm90/ptx/shared_address.cuh"
#include "sm90/ptx/warp.cuh"
#include "sm90/ptx/wgmma.cuh"

namespace flashmask::sm90::backward_pass {

template <BackwardConfig C>
struct QueryGradient {
  using Memory = SharedMemory<C>;

  static constexpr int pieces = 2 * C.halves();  // piece n: half n / 2 of head_dim, rows 32 (n % 2) and following

  float sum[2][16];
  const MainParameters& p;
  Memory& memory;

  __device__ __forceinline__ QueryGradient(const MainParameters& parameters, Memory& shared)
      : p(parameters), memory(shared) {
#pragma unroll
    for (int i = 0; i < 16; ++i) sum[0][i] = sum[1][i] = 0.0F;
  }

  __device__ __forceinline__ void arrive(std::uint64_t* barriers, std::uint32_t stage) {
    if (ptx::lane_index() == 0) ptx::mbarrier_arrive(ptx::shared_address(barriers + stage));
  }

  __device__ __forceinline__ void pin(int set) {
#pragma unroll
    for (int i = 0; i < 16; ++i) ptx::pin(sum[set][i]);
  }

  __device__ __forceinline__ void issue(std::uint32_t kv_stage, std::uint32_t stage, int piece) {
    const std::uint64_t a = layout::mn_major_descriptor(
        ptx::shared_address(memory.k[kv_stage]) + piece / 2 * block_columns * layout::row_bytes, block_columns);
    const std::uint64_t b =
        layout::k_major_descriptor(ptx::shared_address(memory.ds[stage][0])) + piece % 2 * layout::row_step(32);
    pin(piece % 2);
    ptx::wgmma_fence();
#pragma unroll
    for (std::uint32_t i = 0; i < block_columns / 16; ++i) {
      ptx::wgmma<operand_of(C), ptx::Major::mn, ptx::Major::k>(sum[piece % 2], a + layout::mn_major_step(i),
                                                               b + layout::k_major_step(i, block_rows), i != 0);
    }
    ptx::wgmma_commit();
  }

  __device__ __forceinline__ void add(std::int32_t dq_tile, int piece) {
    float* const tile = p.dq_sum + static_cast<std::int64_t>(dq_tile) * (block_rows * C.head_dim) +
                        dq_fragment_offset(0, 0, static_cast<std::int32_t>(ptx::thread_index() % 128));
    const float(&x)[16] = sum[piece % 2];
#pragma unroll
    for (int quad = 0; quad < 4; ++quad) {
      ptx::reduce_add_v4(tile + dq_fragment_offset(piece / 2, piece % 2 * 4 + quad, 0), x[4 * quad], x[4 * quad + 1],
                         x[4 * quad + 2], x[4 * quad + 3]);
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
      const std::uint32_t kv_stage = (flags & tile_flag::kv_stage) != 0 ? 1U : 0U;
      if constexpr (C.accumulate_dq) {
        issue(kv_stage, stage, 0);
#pragma unroll
        for (int piece = 0; piece < pieces; ++piece) {
          ptx::wgmma_wait<0>();
          pin(piece % 2);
          if (piece + 1 == pieces) {
            release(flags, kv_stage, stage);
          } else {
            issue(kv_stage, stage, piece + 1);
          }
          add(w[3], piece);
        }
      } else {
        release(flags, kv_stage, stage);
      }
    }
  }

  /// dS has been read; so has K after the last tile of its block.
  __device__ __forceinline__ void release(std::uint32_t flags, std::uint32_t kv_stage, std::uint32_t stage) {
    arrive(memory.empty_ds, stage);
    if ((flags & tile_flag::last) != 0) arrive(memory.empty_k, kv_stage);
  }
};

}  // namespace flashmask::sm90::backward_pass
