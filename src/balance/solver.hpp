// IPO: starts, pair exchanges, triples and proof, in this order, each only where the last left a gap.
#pragma once

#include "balance/bounds.hpp"
#include "balance/budget.hpp"
#include "balance/state.hpp"

namespace flashmask::balancing {

struct Solution {
  State state;
  Bound bound;  ///< normalised; `search` where a complete search raised it
  PlanMethod method = PlanMethod::lpt;
};

/// What to run and how long. Steps are counted work, so the result does not depend on the machine without a deadline.
struct SolveOptions {
  std::uint64_t seed = 0;
  std::int64_t steps = 0;  ///< of pairs; 0: default_steps
  std::int64_t proof_steps = 0;
  std::optional<Deadline> deadline{};
  bool pairs = true;
  bool triples = true;
};

/// The smallest peak found for `instance` (at least one chunk).
Solution solve(const Instance& instance, const SolveOptions& options);

std::int64_t default_steps(const Instance& instance);

}  // namespace flashmask::balancing
