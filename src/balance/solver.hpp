// IPO: starts, pair exchanges, triples and proof, in this order.
#pragma once

#include "balance/bounds.hpp"
#include "balance/state.hpp"

namespace flashmask::balancing {

struct Solution {
  State state;
  Bound bound;  ///< normalised; `search` where a complete search raised it
  PlanMethod method = PlanMethod::lpt;
};

/// The smallest peak found for `instance` (at least one chunk).
Solution solve(const Instance& instance, const BalanceOptions& options);

}  // namespace flashmask::balancing
