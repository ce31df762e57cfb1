// The oracle on the device: dense attention, forward and backward, from the definition, one thread or CTA per result
// and no cleverness. In float64 it is what kernels are compared with (itself compared with src/cpu/reference); in
// float32 with probabilities rounded to the input type it gives the error that a kernel of that precision is allowed.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/device_tensor.hpp"

namespace flashmask::device {

/// Problem and pointers as the kernels take them; results are contiguous [batch][positions][heads][dim].
template <typename T, typename Real>
struct NaiveCall {
  AttentionShape shape;
  std::int64_t mask_heads;
  MaskView mask;  // device pointers, raw vectors
  const T *q, *k, *v, *dout;
  std::array<std::int64_t, 4> q_strides, k_strides, v_strides, dout_strides;
  Real scale;
  Real *p, *ds;  // [batch][query heads][rows][columns]
  Real *out, *lse, *dq, *dk, *dv;
};

/// Rounds to the input type, or not at all.
template <typename T, typename Real, bool Rounds>
__device__ Real rounded(Real x) {
  if constexpr (Rounds) {
    return static_cast<Real>(static_cast<float>(static_cast<T>(static_cast<float>(x))));
  } else {
    return x;
  }
}

template <typename T>
__device__ double value(const T* data, const std::array<std::int64_t, 4>& s, std::int64_t b, std::int64_t p,
                        std::int64_t h, std::int64_t d) {
  return static_cast<double>(static_cast<float>(data[b * s[0] + p * s[1] + h * s[2] + d * s[3]]));
}

/// Scores, -inf where hidden. One thread per (batch, query head, row, column).
template <typename T, typename Real>
__global__ void naive_scores(NaiveCall<T, Real> c) {
  const AttentionShape& s = c.shape;
  const std::int64_t n = s.batch * s.query_heads * s.rows * s.columns;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t x = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; x < n; x += step) {
    const std::int64_t j = x % s.columns, i = x / s.columns % s.rows, h = x / s.columns / s.rows % s.query_heads;
    const std::int64_t b = x / s.columns / s.rows / s.query_heads;
    const std::int64_t m = (b * c.mask_heads + h / (s.query_heads / c.mask_heads)) * s.columns + j;
    const HiddenRows hidden{c.mask.lts[m], c.mask.lte[m], c.mask.uts[m], c.mask.ute[m]};
    Real dot = 0;
    for (std::int64_t d = 0; d < s.head_dim; ++d) {
      dot += static_cast<Real>(value(c.q, c.q_strides, b, i, h, d)) *
             static_cast<Real>(value(c.k, c.k_strides, b, j, h / (s.query_heads / s.kv_heads), d));
    }
    c.p[x] = hidden.hides(static_cast<std::int32_t>(i)) ? static_cast<Real>(-INFINITY) : dot * c.scale;
  }
}

/// One CTA of 128 threads per (batch, query head, row): p = exp(score - max) in place, LSE, O.
template <typename T, typename Real, bool Rounds>
__global__ void naive_rows(NaiveCall<T, Real> c) {
  __shared__ Real partial[128];
  const AttentionShape& s = c.shape;
  const std::int64_t x = blockIdx.x;
  const std::int64_t i = x % s.rows, h = x / s.rows % s.query_heads, b = x / s.rows / s.query_heads;
  Real* p = c.p + x * s.columns;
  const auto reduce = [&](Real mine, auto&& both) {
    __syncthreads();
    partial[threadIdx.x] = mine;
    __syncthreads();
    Real all = partial[0];
    for (int t = 1; t < 128; ++t) all = both(all, partial[t]);
    return all;
  };
  Real most = static_cast<Real>(-INFINITY), sum = 0;
  for (std::int64_t j = threadIdx.x; j < s.columns; j += 128) most = p[j] > most ? p[j] : most;
  most = reduce(most, [](Real a, Real o) { return a > o ? a : o; });
  const bool empty = most == static_cast<Real>(-INFINITY);
  for (std::int64_t j = threadIdx.x; j < s.columns; j += 128) {
    p[j] = empty ? Real{0} : static_cast<Real>(exp(p[j] - most));
    sum += p[j];
  }
  sum = reduce(sum, [](Real a, Real o) { return a + o; });
  const Real lse = empty ? static_cast<Real>(-INFINITY) : most + static_cast<Real>(log(sum));
  if (threadIdx.x == 0) c.lse[(b * s.query_heads + h) * s.rows + i] = lse;
  for (std::int64_t d = threadIdx.x; d < s.head_dim; d += 128) {
    Real o = 0;
    for (std::int64_t j = 0; j < s.columns; ++j) {
      o += rounded<T, Real, Rounds>(p[j]) *
           static_cast<Real>(value(c.v, c.v_strides, b, j, h / (s.query_heads / s.kv_heads), d));
    }
    c.out[((b * s.rows + i) * s.query_heads + h) * s.head_dim + d] =
        rounded<T, Real, Rounds>(empty ? Real{0} : o / sum);
  }
  __syncthreads();  // O is made of unnormalised p; the backward reads normalised ones
  for (std::int64_t j = threadIdx.x; j < s.columns; j += 128) p[j] = empty ? Real{0} : p[j] / sum;
}

/// One CTA of 128 threads per (batch, query head, row): ds = p * (dP - rowsum(dO * O)), and dQ.
template <typename T, typename Real, bool Rounds>
__global__ void naive_backward_rows(NaiveCall<T, Real> c) {
  const AttentionShape& s = c.shape;
  const std::int64_t x = blockIdx.x, group = s.query_heads / s.kv_heads;
  const std::int64_t i = x % s.rows, h = x / s.rows % s.query_heads, b = x / s.rows / s.query_heads;
  const std::int64_t row = ((b * s.rows + i) * s.query_heads + h) * s.head_dim;
  Real delta = 0;
  for (std::int64_t d = 0; d < s.head_dim; ++d) {
    delta += static_cast<Real>(value(c.dout, c.dout_strides, b, i, h, d)) * c.out[row + d];
  }
  for (std::int64_t j = threadIdx.x; j < s.columns; j += 128) {
    Real dp = 0;
    for (std::int64_t d = 0; d < s.head_dim; ++d) {
      dp += static_cast<Real>(value(c.dout, c.dout_strides, b, i, h, d)) *
            static_cast<Real>(value(c.v, c.v_strides, b, j, h / group, d));
    }
    c.ds[x * s.columns + j] = rounded<T, Real, Rounds>(c.p[x * s.columns + j] * (dp - delta));
  }
  __syncthreads();
  for (std::int64_t d = threadIdx.x; d < s.head_dim; d += 128) {
    Real dq = 0;
    for (std::int64_t j = 0; j < s.columns; ++j) {
      dq += c.ds[x * s.columns + j] * static_cast<Real>(value(c.k, c.k_strides, b, j, h / group, d));
    }
    c.dq[row + d] = rounded<T, Real, Rounds>(dq * c.scale);
  }
}

/// One CTA of 128 threads per (batch, KV head, column): dK and dV, summed over the group's query heads.
template <typename T, typename Real, bool Rounds>
__global__ void naive_backward_columns(NaiveCall<T, Real> c) {
  const AttentionShape& s = c.shape;
  const std::int64_t x = blockIdx.x, group = s.query_heads / s.kv_heads;
  const std::int64_t j = x % s.columns, kv = x / s.columns % s.kv_heads, b = x / s.columns / s.kv_heads;
  for (std::int64_t d = threadIdx.x; d < s.head_dim; d += 128) {
    Real dk = 0, dv = 0;
    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      for (std::int64_t i = 0; i < s.rows; ++i) {
        const std::int64_t cell = ((b * s.query_heads + h) * s.rows + i) * s.columns + j;
        dk += c.ds[cell] * static_cast<Real>(value(c.q, c.q_strides, b, i, h, d));
        dv += rounded<T, Real, Rounds>(c.p[cell]) * static_cast<Real>(value(c.dout, c.dout_strides, b, i, h, d));
      }
    }
    const std::int64_t at = ((b * s.columns + j) * s.kv_heads + kv) * s.head_dim + d;
    c.dk[at] = rounded<T, Real, Rounds>(dk * c.scale);
    c.dv[at] = rounded<T, Real, Rounds>(dv);
  }
}

/// Results as doubles on the host: tensors [batch][positions][heads][dim], lse [batch][query heads][rows].
struct NaiveResult {
  std::vector<double> out, lse, dq, dk, dv;
};

template <typename T>
struct NaiveInputs {
  AttentionShape shape;
  const DeviceTensor<T>*q, *k, *v;
  const DeviceTensor<T>* dout = nullptr;  ///< null: forward only
  const DeviceMaskVectors* mask;
  std::optional<double> scale{};
};

/// Runs the naive kernels. `Real` double and `Rounds` false: the oracle. float and true: the allowed error's measure.
template <typename Real, bool Rounds, typename T>
NaiveResult naive_attention(const NaiveInputs<T>& in) {
  const AttentionShape& s = in.shape;
  const std::int64_t scores = s.batch * s.query_heads * s.rows * s.columns;
  const std::int64_t q_size = s.batch * s.rows * s.query_heads * s.head_dim;
  const std::int64_t k_size = s.batch * s.columns * s.kv_heads * s.head_dim;
  const bool backward = in.dout != nullptr;
  DeviceBuffer<Real> p(scores), out(q_size), lse(s.batch * s.query_heads * s.rows);
  DeviceBuffer<Real> ds(backward ? scores : 0), dq(backward ? q_size : 0), dk(backward ? k_size : 0),
      dv(backward ? k_size : 0);
  NaiveCall<T, Real> c{};
  c.shape = s, c.mask = in.mask->view(), c.mask_heads = in.mask->shape.heads;
  c.q = in.q->data(), c.k = in.k->data(), c.v = in.v->data();
  c.q_strides = in.q->strides(), c.k_strides = in.k->strides(), c.v_strides = in.v->strides();
  c.scale = static_cast<Real>(in.scale.value_or(1 / std::sqrt(static_cast<double>(s.head_dim))));
  c.p = p.data(), c.ds = ds.data(), c.out = out.data(), c.lse = lse.data();
  c.dq = dq.data(), c.dk = dk.data(), c.dv = dv.data();
  const auto row_blocks = static_cast<unsigned>(s.batch * s.query_heads * s.rows);
  const auto column_blocks = static_cast<unsigned>(s.batch * s.kv_heads * s.columns);
  if (scores > 0) naive_scores<T, Real><<<2048, 256>>>(c);
  if (row_blocks > 0) naive_rows<T, Real, Rounds><<<row_blocks, 128>>>(c);
  if (backward) {
    c.dout = in.dout->data(), c.dout_strides = in.dout->strides();
    if (row_blocks > 0) naive_backward_rows<T, Real, Rounds><<<row_blocks, 128>>>(c);
    if (column_blocks > 0) naive_backward_columns<T, Real, Rounds><<<column_blocks, 128>>>(c);
  }
  require(cudaGetLastError(), "launch of the naive kernels");
  require(cudaDeviceSynchronize(), "naive kernels");
  const auto doubles = [](const DeviceBuffer<Real>& b) {
    const std::vector<Real> raw = b.download();
    return std::vector<double>(raw.begin(), raw.end());
  };
  return {doubles(out), doubles(lse), doubles(dq), doubles(dk), doubles(dv)};
}

/// Element i = a normal deviate of (seed, i), times `scale`; over the whole buffer, gaps of strided tensors included.
template <typename T>
__global__ void fill_normal_kernel(T* data, std::int64_t size, std::uint64_t seed, float scale) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) {
    std::uint64_t z = seed * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(i);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z ^= z >> 31;
    const float u = (static_cast<float>(z >> 40) + 0.5F) * 0x1p-24F, a = static_cast<float>(z & 0xffffffU) * 0x1p-24F;
    data[i] = static_cast<T>(scale * sqrtf(-2 * logf(u)) * cospif(2 * a));
  }
}

template <typename T>
void fill_normal(DeviceTensor<T>& tensor, std::uint64_t seed, float scale = 1) {
  if (tensor.buffer().size() == 0) return;
  fill_normal_kernel<<<1024, 256>>>(tensor.data(), tensor.buffer().size(), seed, scale);
  require(cudaGetLastError(), "fill_normal");
}

}  // namespace flashmask::device
