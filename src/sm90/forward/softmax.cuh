// Online softmax in registers. Maxima are in raw score units; probabilities are 2^((score - maximum) * scale_log2).
//
// The maximum is only a reference: any value gives the same result after the division by the sum, as long as nothing
// overflows. So a block is exponentiated against the maximum of earlier blocks, and only if a thread's sum over the
// block shows that some row has outgrown it, the true maximum is taken, O rescaled and the block done again (its scores
// are still in their registers). In the common case no maximum is computed and nothing is shuffled.
#pragma once

#include <cstdint>

#include "sm90/forward/products.cuh"

namespace flashmask::sm90::forward_pass {

/// Maximum of a row that has seen nothing: finite, so that hidden scores (-inf) give 0, and so low that the first
/// visible score gives infinity and asks for the true maximum.
inline constexpr float nothing_seen = -1e30F;
/// A thread's sum over a block above which the maximum is raised; keeps probabilities far inside fp16, too.
inline constexpr float largest_block_sum = 1024.0F;

/// Two rows a thread: `lane / 4` and `lane / 4 + 8` of the warp's 16.
struct RowState {
  float maximum[2] = {nothing_seen, nothing_seen};
  float sum[2] = {0.0F, 0.0F};  ///< of this thread's columns; summed over the quad in the epilogue
};

/// Sums of the probabilities of one block over this thread's columns.
struct BlockSums {
  float row[2];
};

__device__ __forceinline__ float quad_maximum(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 2));
}

/// P = probabilities of S, rounded to the input type; S keeps its scores. Neighbouring accumulators already stand as
/// the A operand of the next product wants them.
template <ForwardConfig C>
__device__ __forceinline__ BlockSums exponentiate(Fragments<C>& f, const RowState& state, float scale_log2) {
  const float offset[2] = {-state.maximum[0] * scale_log2, -state.maximum[1] * scale_log2};
  BlockSums sums{{0.0F, 0.0F}};
#pragma unroll
  for (std::int32_t i = 0; i < C.block_n / 2; i += 2) {
    const std::int32_t r = i >> 1 & 1;
    const float low = ptx::exp2_approx(fmaf(f.s[i], scale_log2, offset[r]));
    const float high = ptx::exp2_approx(fmaf(f.s[i + 1], scale_log2, offset[r]));
    sums.row[r] += low;
    sums.row[r] += high;
    f.p[i / 2] = pack<C>(low, high);
  }
  return sums;
}

/// Takes the true maxima of what was seen so far, and rescales O and the sums to them. No product may be in flight.
template <ForwardConfig C>
__device__ __forceinline__ void raise_maximum(Fragments<C>& f, RowState& state, float scale_log2) {
  float local[2] = {f.s[0], f.s[2]};
#pragma unroll
  for (std::int32_t i = 1; i < C.block_n / 2; ++i) {
    if (i != 2) local[i >> 1 & 1] = fmaxf(local[i >> 1 & 1], f.s[i]);
  }
  float factor[2];
#pragma unroll
  for (std::int32_t r = 0; r < 2; ++r) {
    const float raised = fmaxf(state.maximum[r], quad_maximum(local[r]));
    factor[r] = ptx::exp2_approx((state.maximum[r] - raised) * scale_log2);
    state.maximum[r] = raised;
    state.sum[r] *= factor[r];
  }
#pragma unroll
  for (std::int32_t i = 0; i < C.head_dim / 2; ++i) f.o[i] *= factor[i >> 1 & 1];
}

/// P and the row state of the block whose scores are in S.
template <ForwardConfig C>
__device__ __forceinline__ void softmax(Fragments<C>& f, RowState& state, float scale_log2) {
  BlockSums sums = exponentiate<C>(f, state, scale_log2);
  const bool outgrown = !(fmaxf(sums.row[0], sums.row[1]) <= largest_block_sum);
  if (__any_sync(0xFFFFFFFFU, outgrown)) {
    raise_maximum<C>(f, state, scale_log2);
    sums = exponentiate<C>(f, state, scale_log2);
  }
  state.sum[0] += sums.row[0];
  state.sum[1] += sums.row[1];
}

}  // namespace flashmask::sm90::forward_pass
