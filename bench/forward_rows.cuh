// Sampled rows of a forward call against float64, at sizes where a whole oracle does not fit.
#pragma once

#include <cmath>
#include <cstdint>

#include "flashmask/attention.hpp"
#include "flashmask/mask.hpp"

namespace flashmask::bench {

/// One CTA per sampled (batch, head, row): largest error of out over the row and error of lse, in float64.
template <typename T>
__global__ void check_rows(const T* q, const T* k, const T* v, const T* out, const float* lse, AttentionShape s,
                           MaskView mask, const std::int64_t* samples, double* errors) {
  extern __shared__ float scores[];
  __shared__ double partial[128];
  const std::int64_t flat = samples[blockIdx.x];
  const std::int64_t i = flat % s.rows, h = flat / s.rows % s.query_heads, b = flat / s.rows / s.query_heads;
  const std::int64_t kv = h / (s.query_heads / s.kv_heads);
  const double scale = 1 / sqrt(static_cast<double>(s.head_dim));
  const T* query = q + ((b * s.rows + i) * s.query_heads + h) * s.head_dim;
  const auto reduce = [&](double x, bool maximum) {
    __syncthreads();
    partial[threadIdx.x] = x;
    __syncthreads();
    double all = partial[0];
    for (int t = 1; t < 128; ++t) all = maximum ? fmax(all, partial[t]) : all + partial[t];
    return all;
  };
  double most = -INFINITY;
  for (std::int64_t j = threadIdx.x; j < s.columns; j += 128) {
    const T* key = k + ((b * s.columns + j) * s.kv_heads + kv) * s.head_dim;
    double dot = 0;
    for (std::int64_t d = 0; d < s.head_dim; ++d) {
      dot += static_cast<double>(static_cast<float>(query[d])) * static_cast<double>(static_cast<float>(key[d]));
    }
    const std::int64_t matrix =
        (mask.shape.batch == 1 ? 0 : b) * mask.shape.heads + h / (s.query_heads / mask.shape.heads);
    const std::int64_t m = matrix * s.columns + j;
    const HiddenRows hidden{mask.lts[m], mask.lte[m], mask.uts[m], mask.ute[m]};
    const double score = hidden.hides(static_cast<std::int32_t>(i)) ? -INFINITY : dot * scale;
    scores[j] = static_cast<float>(score);
    most = fmax(most, score);
  }
  most = reduce(most, true);
  double sum = 0;
  for (std::int64_t j = threadIdx.x; j < s.columns; j += 128) sum += most == -INFINITY ? 0 : exp(scores[j] - most);
  sum = reduce(sum, false);
  double worst = 0;
  for (std::int64_t d = threadIdx.x; d < s.head_dim; d += 128) {
    double o = 0;
    for (std::int64_t j = 0; j < s.columns; ++j) {
      if (scores[j] == -INFINITY) continue;
      o += exp(scores[j] - most) *
           static_cast<double>(static_cast<float>(v[((b * s.columns + j) * s.kv_heads + kv) * s.head_dim + d]));
    }
    const double got = static_cast<float>(out[((b * s.rows + i) * s.query_heads + h) * s.head_dim + d]);
    const double error = fabs(got - (sum > 0 ? o / sum : 0));
    worst = error == error ? fmax(worst, error) : INFINITY;
  }
  worst = reduce(worst, true);
  if (threadIdx.x == 0) {
    const double want = sum > 0 ? most + log(sum) : -INFINITY, got = lse[flat];
    errors[2 * blockIdx.x] = worst;
    errors[2 * blockIdx.x + 1] = want == got ? 0 : fabs(want - got);
  }
}

}  // namespace flashmask::bench
