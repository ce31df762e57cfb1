// Is a result right? Against the float64 oracle, against closed forms, and for what must hold everywhere.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "problem.hpp"
#include "sample.hpp"

namespace flashmask::app {

/// The five outputs, in the order of every report.
inline constexpr std::array<const char*, 5> kOutputs = {"out", "lse", "dq", "dk", "dv"};

/// Largest error of one output against its tolerance. Unchecked: both NaN.
struct OutputCheck {
  double error = std::numeric_limits<double>::quiet_NaN();
  double tolerance = std::numeric_limits<double>::quiet_NaN();
  bool checked = false;
};

struct Verification {
  std::array<OutputCheck, 5> outputs{};  ///< against the oracle
  std::array<OutputCheck, 5> probe{};    ///< against the closed form, at the worst place by error over tolerance
  std::vector<std::string> failures;     ///< one sentence each, with the place and both values
  std::string coverage;                  ///< what was compared, for people
  bool sampled = false;
  [[nodiscard]] bool passed() const { return failures.empty(); }
};

/// Every element of every output: nothing left unwritten, no NaN or infinity except LSE = -inf exactly in rows that see
/// nothing, zeros exactly there and in the dK, dV of columns nobody sees.
void verify_everywhere(const Problem& problem, Verification& verification);

/// The sample against float64, within the derived tolerances (src/attention/tolerance.hpp).
void verify_oracle(Problem& problem, const Sample& sample, Verification& verification);

/// Two further runs on the same mask and map whose scores are all 0, against their closed form in every row, column and
/// head (src/attention/uniform.hpp): Q = 0 shows LSE = ln(visible columns), out and dQ, K = 0 shows dK and dV.
void verify_probe(const Problem& problem, std::uint64_t seed, Verification& verification);

}  // namespace flashmask::app
