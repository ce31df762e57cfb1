#include "attention/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.hpp"

namespace flashmask {
namespace {

/// n independent errors of sizes c_i, as often up as down, add up to less than 6 sqrt(sum c_i^2) but for a chance of
/// 2 exp(-6^2 / 2) = 3e-8 (Hoeffding); for n <= 36 always.
constexpr double kStoredSafety = 6;

}  // namespace

double ulp(double x, DType dtype) {
  struct Format {
    int digits, min_exponent;  // stored mantissa bits, exponent of the smallest normal number
  };
  const Format f = dtype == DType::f32 ? Format{23, -126} : dtype == DType::f16 ? Format{10, -14} : Format{7, -126};
  const double magnitude = std::abs(x);
  const int exponent = magnitude == 0 ? f.min_exponent : std::max(std::ilogb(magnitude), f.min_exponent);
  return std::ldexp(1.0, exponent - f.digits);
}

double tolerance(const cpu::reference::Values& exact, const cpu::reference::Values& naive, DType output) {
  core::check(exact.values.size() == naive.values.size(), "exact has {} values and naive {}: they must be one call's",
              exact.values.size(), naive.values.size());
  double error = 0;
  double largest = 0;
  for (std::size_t i = 0; i < exact.values.size(); ++i) {
    if (!std::isfinite(exact.values[i])) continue;
    largest = std::max(largest, std::abs(exact.values[i]));
    if (std::isfinite(naive.values[i])) error = std::max(error, std::abs(naive.values[i] - exact.values[i]));
  }
  return 2 * error + 4 * ulp(largest, output) + 4 * 0x1p-24 * exact.magnitude + kStoredSafety * exact.stored_deviation;
}

Deviation deviation(std::span<const double> got, std::span<const double> expected) {
  core::check(got.size() == expected.size(), "got {} values but {} are expected", got.size(), expected.size());
  Deviation worst;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool finite = std::isfinite(got[i]) && std::isfinite(expected[i]);
    const bool same = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]));
    const double error = same ? 0.0 : finite ? std::abs(got[i] - expected[i]) : std::numeric_limits<double>::infinity();
    if (worst.index < 0 || error > worst.error) worst = {error, static_cast<std::int64_t>(i), got[i], expected[i]};
  }
  return worst;
}

}  // namespace flashmask
