// The two products of a block, issued without waiting: S = Q K^T (A and B from shared memory) and O += P V (A in
// registers).
#pragma once

#include <cstdint>

#include "sm90/forward/config.hpp"
#include "sm90/layout/descriptor.hpp"
#include "sm90/ptx/math.cuh"
#include "sm90/ptx/warp.cuh"
#include "sm90/ptx/wgmma.cuh"

namespace flashmask::sm90::forward_pass {

template <ForwardConfig C>
inline constexpr ptx::Operand operand = C.element == Element::bf16 ? ptx::Operand::bf16 : ptx::Operand::f16;

template <ForwardConfig C>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  if constexpr (C.element == Element::bf16) {
    return ptx::pack_bf16(low, high);
  } else {
    return ptx::pack_f16(low, high);
  }
}

/// Registers of a consumer thread: scores of one block, the same as probabilities, output of the row tile.
template <ForwardConfig C>
struct Fragments {
  float s[C.block_n / 2];
  std::uint32_t p[C.block_n / 4];
  float o[C.head_dim / 2];

  __device__ __forceinline__ void pin_s() {
#pragma unroll
    for (std::int32_t i = 0; i < C.block_n / 2; ++i) ptx::pin(s[i]);
  }
  __device__ __forceinline__ void pin_p() {
#pragma unroll
    for (std::int32_t i = 0; i < C.block_n / 4; ++i) ptx::pin(p[i]);
  }
  __device__ __forceinline__ void pin_o() {
#pragma unroll
    for (std::int32_t i = 0; i < C.head_dim / 2; ++i) ptx::pin(o[i]);
  }
};

/// S = Q K^T. `q` and `k` are K-major descriptors of this warpgroup's 64 rows and of the block.
template <ForwardConfig C>
__device__ __forceinline__ void issue_scores(Fragments<C>& f, std::uint64_t q, std::uint64_t k) {
  f.pin_s();
  ptx::wgmma_fence();
#pragma unroll
  for (std::uint32_t i = 0; i < C.head_dim / 16; ++i) {
    ptx::wgmma<operand<C>, ptx::Major::k, ptx::Major::k>(f.s, q + layout::k_major_step(i, C.block_m()),
                                                         k + layout::k_major_step(i, C.block_n), i != 0);
  }
  ptx::wgmma_commit();
}

/// O += P V. `v` is the MN-major descriptor of the block.
template <ForwardConfig C>
__device__ __forceinline__ void issue_output(Fragments<C>& f, std::uint64_t v) {
  f.pin_p();
  f.pin_o();
  ptx::wgmma_fence();
#pragma unroll
  for (std::uint32_t i = 0; i < C.block_n / 16; ++i) {
    ptx::wgmma<operand<C>, ptx::Major::mn>(f.o, f.p[4 * i], f.p[4 * i + 1], f.p[4 * i + 2], f.p[4 * i + 3],
                                           v + layout::mn_major_step(i), true);
  }
  ptx::wgmma_commit();
}

}  // namespace flashmask::sm90::forward_pass
