// Register-blocked product of a broadcast factor and a panel.
#pragma once

#include "cpu/isa/vector.hpp"
#include "cpu/kernels.hpp"

namespace flashmask::cpu::isa {
namespace {

// 16 accumulators of 512 bits (32 registers), or 12 of 256 or 128 bits (16 registers): each panel load is used by
// kRows multiply-adds and each broadcast by kVectors.
#if defined(__AVX512F__)
constexpr int kRows = 6;
constexpr int kVectors = 4;
#else
constexpr int kRows = 6;
constexpr int kVectors = 2;
#endif

/// R rows x N vectors of the product. KContiguous: a.k_stride is 1, else a.m_stride is.
template <int R, int N, bool KContiguous>
FLASHMASK_ISA_INLINE void multiply_block(std::int64_t k, const float* a, std::int64_t stride, const float* b, float* c,
                                         bool accumulate) {
  Vec sum[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sum[r][n] = accumulate ? load(c + r * kStrip + n * kLanes) : Vec{};
  }
  for (std::int64_t p = 0; p < k; ++p) {
    Vec panel[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) panel[n] = load(b + p * kStrip + n * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float factor = KContiguous ? a[r * stride + p] : a[p * stride + r];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sum[r][n] += panel[n] * factor;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) store(c + r * kStrip + n * kLanes, sum[r][n]);
  }
}

/// All rows of one group of N vectors: blocks of kRows, then one smaller block.
template <int N, bool KContiguous>
void multiply_rows(std::int64_t m, std::int64_t k, const float* a, std::int64_t stride, const float* b, float* c,
                   bool accumulate) {
  const std::int64_t step = KContiguous ? stride : 1;
  for (; m >= kRows; m -= kRows, a += kRows * step, c += kRows * kStrip) {
    multiply_block<kRows, N, KContiguous>(k, a, stride, b, c, accumulate);
  }
  switch (m) {
    case 5:
      return multiply_block<5, N, KContiguous>(k, a, stride, b, c, accumulate);
    case 4:
      return multiply_block<4, N, KContiguous>(k, a, stride, b, c, accumulate);
    case 3:
      return multiply_block<3, N, KContiguous>(k, a, stride, b, c, accumulate);
    case 2:
      return multiply_block<2, N, KContiguous>(k, a, stride, b, c, accumulate);
    case 1:
      return multiply_block<1, N, KContiguous>(k, a, stride, b, c, accumulate);
    default:
      return;
  }
}

template <bool KContiguous>
void multiply_lanes(std::int64_t m, std::int64_t lanes, std::int64_t k, const float* a, std::int64_t stride,
                    const float* b, float* c, bool accumulate) {
  std::int64_t lane = 0;
  for (; lane + kVectors * kLanes <= lanes; lane += kVectors * kLanes) {
    multiply_rows<kVectors, KContiguous>(m, k, a, stride, b + lane, c + lane, accumulate);
  }
  for (; lane < lanes; lane += kLanes) {
    multiply_rows<1, KContiguous>(m, k, a, stride, b + lane, c + lane, accumulate);
  }
}

void multiply(std::int64_t m, std::int64_t lanes, std::int64_t k, Factor a, const float* b, float* c, bool accumulate) {
  if (a.k_stride == 1) {
    multiply_lanes<true>(m, lanes, k, a.data, a.m_stride, b, c, accumulate);
  } else {
    multiply_lanes<false>(m, lanes, k, a.data, a.k_stride, b, c, accumulate);
  }
}

void lane_dots(std::int64_t lanes, std::int64_t k, const float* a, const float* b, float* out) {
  for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
    Vec sum{};
    for (std::int64_t p = 0; p < k; ++p) sum += load(a + p * kStrip + lane) * load(b + p * kStrip + lane);
    store(out + lane, sum);
  }
}

}  // namespace
}  // namespace flashmask::cpu::isa
