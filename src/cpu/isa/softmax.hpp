// The elementwise work between two products: masks, online softmax, and the gradient of the scores.
#pragma once

#include "cpu/isa/vector.hpp"
#include "cpu/kernels.hpp"

namespace flashmask::cpu::isa {
namespace {

/// Lanes are rows: which lanes the column at `n` hides. All bits set where hidden.
FLASHMASK_ISA_INLINE IntVec hidden_rows(const Intervals& hidden, std::int64_t n, IntVec rows) {
  return ((rows >= hidden.lts[n]) & (rows < hidden.lte[n])) | ((rows >= hidden.uts[n]) & (rows < hidden.ute[n]));
}

template <bool Partial>
void softmax_lanes(const Piece& piece, float* scores, SoftmaxState state, float* out, std::int64_t head_dim) {
  for (std::int64_t lane = 0; lane < piece.lanes; lane += kLanes) {
    const IntVec rows = iota() + static_cast<std::int32_t>(piece.first_row + lane);
    const Vec before = load(state.maximum + lane);
    Vec highest = before;
    for (std::int64_t n = 0; n < piece.count; ++n) {
      Vec score = load(scores + n * kStrip + lane) * piece.scale_log2;
      if constexpr (Partial) score = hidden_rows(*piece.hidden, n, rows) ? splat(-kInfinity) : score;
      store(scores + n * kStrip + lane, score);
      highest = maximum(highest, score);
    }
    // A row that has seen nothing yet keeps -infinity; subtracting 0 from its scores gives exp2(-infinity) = 0.
    const Vec shift = highest == -kInfinity ? Vec{} : highest;
    Vec sum{};
    for (std::int64_t n = 0; n < piece.count; ++n) {
      const Vec probability = exp2(load(scores + n * kStrip + lane) - shift);
      sum += probability;
      store(scores + n * kStrip + lane, probability);
    }
    const Vec decay = exp2(before - shift);
    store(state.sum + lane, load(state.sum + lane) * decay + sum);
    store(state.maximum + lane, highest);
    for (std::int64_t d = 0; d < head_dim; ++d) {
      store(out + d * kStrip + lane, load(out + d * kStrip + lane) * decay);
    }
  }
}

void softmax(const Piece& piece, float* scores, SoftmaxState state, float* out, std::int64_t head_dim) {
  piece.hidden != nullptr ? softmax_lanes<true>(piece, scores, state, out, head_dim)
                          : softmax_lanes<false>(piece, scores, state, out, head_dim);
}

/// P of a score whose row has the log-sum-exp `lse` (log2 domain). The cap keeps a wrong lse from leaving exp2's range.
FLASHMASK_ISA_INLINE Vec probability_of(Vec score, Vec lse, float scale_log2) {
  const Vec x = score * scale_log2 - lse;
  return exp2(x > 127.0F ? splat(127.0F) : x);
}

void score_gradient_rows(const Piece& piece, float* scores, const float* dprob, const float* lse, const float* delta) {
  for (std::int64_t lane = 0; lane < piece.lanes; lane += kLanes) {
    const IntVec rows = iota() + static_cast<std::int32_t>(piece.first_row + lane);
    const Vec row_lse = load(lse + lane);
    const Vec row_delta = load(delta + lane);
    for (std::int64_t n = 0; n < piece.count; ++n) {
      float* score = scores + n * kStrip + lane;
      const Vec probability = probability_of(load(score), row_lse, piece.scale_log2);
      Vec gradient = probability * (load(dprob + n * kStrip + lane) - row_delta);
      if (piece.hidden != nullptr) gradient = hidden_rows(*piece.hidden, n, rows) ? Vec{} : gradient;
      store(score, gradient);
    }
  }
}

void score_gradient_columns(const Piece& piece, float* scores, float* dprob, const float* lse, const float* delta) {
  for (std::int64_t lane = 0; lane < piece.lanes; lane += kLanes) {
    IntVec lts{};
    IntVec lte{};
    IntVec uts{};
    IntVec ute{};
    if (piece.hidden != nullptr) {
      lts = load(piece.hidden->lts + lane);
      lte = load(piece.hidden->lte + lane);
      uts = load(piece.hidden->uts + lane);
      ute = load(piece.hidden->ute + lane);
    }
    for (std::int64_t i = 0; i < piece.count; ++i) {
      const IntVec row = splat(static_cast<std::int32_t>(piece.first_row + i));
      float* score = scores + i * kStrip + lane;
      float* gradient = dprob + i * kStrip + lane;
      const Vec probability = probability_of(load(score), splat(lse[i]), piece.scale_log2);
      const Vec ds = probability * (load(gradient) - delta[i]);
      const IntVec hidden = ((row >= lts) & (row < lte)) | ((row >= uts) & (row < ute));
      store(score, hidden ? Vec{} : probability);
      store(gradient, hidden ? Vec{} : ds);
    }
  }
}

}  // namespace
}  // namespace flashmask::cpu::isa
