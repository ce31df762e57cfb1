// How far a result may be from the float64 oracle, derived from the inputs of the very call (DESIGN.md 5.9):
//
//   2 x the largest error of a naive computation in the same precision (float32 sums, P and dS rounded to the dtype)
//   + 4 units in the last place, in the output's type, of the largest reference value
//   + 4 float32 roundings of the result's own terms (reference::Values::magnitude)
//   + what rounding O does through rowsum(dO o O): six times the root of the sum of squares over the roundings of its
//     elements (reference::Values::stored_deviation; docs/attention.md derives it).
//
// The last two terms are what no algorithm avoids that sums in float32 and reads O as it was stored. They matter where
// terms cancel: without them a result that is zero by cancellation would have to be zero exactly, and a call with few
// rows would be judged by the luck of the naive computation's own roundings.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cpu/reference.hpp"
#include "flashmask/tensor.hpp"

namespace flashmask {

/// Distance from |x| to the next larger value of `dtype` (its smallest subnormal near 0).
double ulp(double x, DType dtype);

/// Largest |got - exact| allowed for any element. `output` is the type the result and O are stored in (f32 for an LSE).
double tolerance(const cpu::reference::Values& exact, const cpu::reference::Values& naive, DType output);

/// The worst deviation from the oracle. Infinities and NaNs must sit at the same places (and agree in sign): the first
/// that does not makes `error` infinite.
struct Deviation {
  double error = 0;
  std::int64_t index = -1;  ///< flat index of the worst element
  double got = 0, expected = 0;
};
Deviation deviation(std::span<const double> got, std::span<const double> expected);

}  // namespace flashmask
