#include "balance/solver.hpp"

#include <utility>

#include "balance/starts.hpp"

namespace flashmask::balancing {

Solution solve(const Instance& in, const BalanceOptions&) {
  Solution best{lpt(in), lower_bound(in), PlanMethod::lpt};
  if (in.speeds.empty() && best.state.peak(in) > best.bound.value) {
    State other = bldm(in);
    if (other.peak(in) < best.state.peak(in)) {
      best.state = std::move(other);
      best.method = PlanMethod::bldm;
    }
  }
  return best;
}

}  // namespace flashmask::balancing
