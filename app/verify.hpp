// Is a result right? Against the float64 oracle, by the count probe, and for what must hold everywhere.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "problem.hpp"
#include "sample.hpp"

namespace flashmask::app {

/// The five outputs, in the order of every report.
inline constexpr std::array<const char*, 5> kOutputs = {"out", "lse", "dq", "dk", "dv"};

/// Largest error of one output against its tolerance. Unchecked: both NaN.
struct OutputCheck {
  double error;
  double tolerance;
  bool checked = false;
};

struct Verification {
  std::array<OutputCheck, 5> outputs{};
  std::vector<std::string> failures;  ///< one sentence each, with the place and both values
  std::string coverage;               ///< what was compared, for people
  bool sampled = false;
  [[nodiscard]] bool passed() const { return failures.empty(); }
};

/// Every element of every output: nothing left unwritten, no NaN or infinity except LSE = -inf exactly in rows that see
/// nothing, zeros exactly there and in the dK, dV of columns nobody sees.
void verify_everywhere(const Problem& problem, Verification& verification);

/// The sample against float64, within the derived tolerances (src/attention/tolerance.hpp).
void verify_oracle(Problem& problem, const Sample& sample, Verification& verification);

/// Runs a forward with Q = 0, whose LSE must be ln(visible columns) in every row of every head; one wrong cell shows.
/// Sets the LSE check if the oracle did not.
void verify_probe(Problem& problem, Verification& verification);

}  // namespace flashmask::app
