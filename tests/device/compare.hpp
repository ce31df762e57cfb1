// Derived tolerances (docs: the error against float64 may be twice that of a naive computation in the same precision,
// plus 4 ulp of the largest reference value in the output type), with NaN and infinity positions compared first.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/tolerance.hpp"
#include "flashmask/attention.hpp"

namespace flashmask::device {

struct Comparison {
  double worst = 0;      ///< largest absolute error
  double allowed = 0;    ///< what it may be
  std::int64_t at = -1;  ///< its index
  std::string text;      ///< empty if all is well
};

/// `got` against `exact` (float64), allowed what `naive` (same precision as `got`) is off by, twice, plus 4 ulp, plus
/// `cancellation`: float32 roundings of terms that cancel, which a naive sum in one order may escape altogether.
inline Comparison compare(const std::string& name, const std::vector<double>& got, const std::vector<double>& exact,
                          const std::vector<double>& naive, DType dtype, double cancellation = 0) {
  Comparison c;
  if (got.size() != exact.size() || naive.size() != exact.size()) {
    c.text = name + ": " + std::to_string(got.size()) + " values for " + std::to_string(exact.size());
    return c;
  }
  const Deviation d = deviation(got, exact);
  c.worst = d.error, c.at = d.index;
  double largest = 0;
  for (const double x : exact) largest = std::isfinite(x) ? std::max(largest, std::abs(x)) : largest;
  c.allowed = 2 * deviation(naive, exact).error + 4 * ulp(largest, dtype) + cancellation;
  if (!(c.worst <= c.allowed)) {
    c.text = name + "[" + std::to_string(d.index) + "] is " + std::to_string(d.got) + ", not " +
             std::to_string(d.expected) + ": off by " + std::to_string(d.error) + ", allowed " +
             std::to_string(c.allowed);
  }
  return c;
}

/// Worst error over its allowance of every tensor compared in one test; written into the test's record at the end.
class WorstErrors {
 public:
  ~WorstErrors() {
    for (const auto& [name, ratio] : worst_) ::testing::Test::RecordProperty("worst_" + name, std::to_string(ratio));
  }
  /// True if it holds; otherwise a test failure that says where.
  bool expect_close(const std::string& name, const std::vector<double>& got, const std::vector<double>& exact,
                    const std::vector<double>& naive, DType dtype, const std::string& context = {},
                    double cancellation = 0) {
    const Comparison c = compare(name, got, exact, naive, dtype, cancellation);
    if (!c.text.empty()) ADD_FAILURE() << c.text << ' ' << context;
    const double ratio = c.allowed > 0 ? c.worst / c.allowed : 0;
    const auto it = std::find_if(worst_.begin(), worst_.end(), [&](const auto& w) { return w.first == name; });
    if (it == worst_.end()) {
      worst_.emplace_back(name, ratio);
    } else {
      it->second = std::max(it->second, ratio);
    }
    return c.text.empty();
  }

 private:
  std::vector<std::pair<std::string, double>> worst_;
};

}  // namespace flashmask::device
