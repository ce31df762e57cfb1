// Attention whose scores are all 0, in closed form: a check of every element of every output that costs no attention.
//
// With Q = 0 or K = 0 row i weighs its n_i visible columns by 1 / n_i, so all results are sums over the visible rows of
// a column or the visible columns of a row, and those are sums over at most three runs a column: O((rows + columns) x
// head_dim) a head, in float64, for any mask. What such a run cannot show is the arithmetic of scores and exponentials;
// what it shows everywhere is which cells were taken.
#pragma once

#include <cstdint>

#include "flashmask/attention.hpp"

namespace flashmask::uniform {

/// The worst place of one output, by error over allowance.
struct Finding {
  double error = 0;
  double allowed = 0;
  double got = 0, expected = 0;
  std::int64_t batch = -1, head = 0, position = 0, dim = 0;
  [[nodiscard]] bool passed() const { return error <= allowed; }
};

// Each compares one output of a call whose scores are 0 with its closed form. Allowed are one unit in the last place of
// the output's type, and (64 + 8 sqrt(terms)) float32 roundings of the sum of the terms' magnitudes: what float32 sums,
// an LSE in float32 and the stored O (which is taken as it is) cost.
//
// `weights` is the type that P and dS of the backward are rounded to before they are multiplied: f32 on the CPU, the
// tensors' own type in tensor cores. Those roundings do not know the random factors they meet, so a gradient is off by
// a random sum: allowed are eight of its deviations. (The forward multiplies 2^0 = 1, exact in any type.)

/// LSE = ln n_i, -inf where n_i = 0; four units in the last place.
Finding check_lse(const BackwardArguments& arguments, DType weights = DType::f32);
/// O = mean of the visible V.
Finding check_out(const BackwardArguments& arguments, DType weights = DType::f32);
/// dV = sum over the visible rows of dO / n_i.
Finding check_dv(const BackwardArguments& arguments, DType weights = DType::f32);
/// dQ where Q = 0 and dO is zero but for its component 0.
Finding check_dq(const BackwardArguments& arguments, DType weights = DType::f32);
/// dK where K = 0 and V is zero but for its component 0.
Finding check_dk(const BackwardArguments& arguments, DType weights = DType::f32);

}  // namespace flashmask::uniform
