// Online softmax in registers. Maxima are in raw score units; probabilities are 2^(score * scale_log2 - max *
// scale_log2).
//
// Lazy rescale: the old maximum is kept until a row grew by more than 2^8 (in probabilities), which is exact after the
// division by the sum and spares the rescale of O. The test needs only each thread's own maximum, so in the common case
// no shuffle runs at all.
#pragma once

#include <cstdint>

#include "sm90/forward/products.cuh"

namespace flashmask::sm90::forward_pass {

inline constexpr float negative_infinity = -__builtin_huge_valf();
inline constexpr float lazy_growth_log2 = 8.0F;

/// Two rows a thread: `lane / 4` and `lane / 4 + 8` of the warp's 16.
struct RowState {
  float maximum[2] = {negative_infinity, negative_infinity};
  float sum[2] = {0.0F, 0.0F};  ///< of this thread's columns; summed over the quad in the epilogue
};

/// Factors that O must be multiplied by before the next product; `needed` is uniform in the warp.
struct Rescale {
  bool needed = false;
  float factor[2] = {1.0F, 1.0F};
};

__device__ __forceinline__ float quad_maximum(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 2));
}

/// Raises the maxima if some row of the warp grew too much.
template <ForwardConfig C>
__device__ __forceinline__ Rescale update_maximum(const Fragments<C>& f, RowState& state, float scale_log2,
                                                  float growth) {
  float local[2] = {f.s[0], f.s[2]};
#pragma unroll
  for (std::int32_t i = 1; i < C.block_n / 2; ++i) {
    if (i != 2) local[i >> 1 & 1] = fmaxf(local[i >> 1 & 1], f.s[i]);
  }
  Rescale rescale;
  const bool grew = local[0] - growth > state.maximum[0] || local[1] - growth > state.maximum[1];
  rescale.needed = __any_sync(0xFFFFFFFFU, grew);
  if (rescale.needed) {
#pragma unroll
    for (std::int32_t r = 0; r < 2; ++r) {
      const float raised = fmaxf(state.maximum[r], quad_maximum(local[r]));
      // A row that has seen nothing keeps -inf; its sum and output are zero and stay so.
      rescale.factor[r] =
          raised == negative_infinity ? 1.0F : ptx::exp2_approx((state.maximum[r] - raised) * scale_log2);
      state.maximum[r] = raised;
      state.sum[r] *= rescale.factor[r];
    }
  }
  return rescale;
}

/// S becomes probabilities; their sums go to the row state.
template <ForwardConfig C>
__device__ __forceinline__ void exponentiate(Fragments<C>& f, RowState& state, float scale_log2) {
  float offset[2];
#pragma unroll
  for (std::int32_t r = 0; r < 2; ++r) {
    offset[r] = state.maximum[r] == negative_infinity ? 0.0F : -state.maximum[r] * scale_log2;
  }
#pragma unroll
  for (std::int32_t i = 0; i < C.block_n / 2; ++i) {
    f.s[i] = ptx::exp2_approx(fmaf(f.s[i], scale_log2, offset[i >> 1 & 1]));
    state.sum[i >> 1 & 1] += f.s[i];
  }
}

template <ForwardConfig C>
__device__ __forceinline__ void rescale_output(Fragments<C>& f, const Rescale& rescale) {
  if (!rescale.needed) return;
#pragma unroll
  for (std::int32_t i = 0; i < C.head_dim / 2; ++i) f.o[i] *= rescale.factor[i >> 1 & 1];
}

}  // namespace flashmask::sm90::forward_pass
