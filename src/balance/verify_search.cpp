#include "balance/verify_search.hpp"

#include <algorithm>

#include "balance/refute.hpp"
#include "balance/verify_kind.hpp"
#include "core/check.hpp"

namespace flashmask::balancing {
namespace {

using Wide = Refuter::Wide;

/// With speeds LPT looks at every rank for every chunk: beyond this many looks it is not dealt again.
constexpr std::int64_t kMostLooks = std::int64_t{1} << 30;

bool dealt_again(const PlanRecord& r) {
  return r.speeds.empty() || static_cast<std::int64_t>(r.assignment.size()) <= kMostLooks / r.ranks;
}

/// What epsilon lets a plan by hierarchy rise to.
std::int64_t allowed(const PlanRecord& r) {
  return r.lower_bound + static_cast<std::int64_t>(Wide{r.lower_bound} * r.epsilon_millionths / 1'000'000);
}

}  // namespace

std::string search_finding(const PlanRecord& r) {
  if (r.kind != PlanKind::hcc_ipo || r.method == PlanMethod::lpt || r.assignment.empty() || !dealt_again(r)) return {};
  const std::int64_t lpt = last_end(r, rank_sums(r, lpt_assignment(r)));
  if (r.method == PlanMethod::hierarchy) {
    if (r.peak <= std::max(lpt, allowed(r))) return {};
    return core::format(
        "method is hierarchy, but the peak {} is above (1 + epsilon) x lower_bound = {} and above the peak of lpt, {}, "
        "from which the search starts",
        r.peak, allowed(r), lpt);
  }
  if (r.peak < lpt) return {};
  return core::format("method is {}, which is named where it ends below lpt, but the peak is {} and that of lpt is {}",
                      to_string(r.method), r.peak, lpt);
}

std::vector<std::string> search_claims(const PlanRecord& r) {
  std::vector<std::string> claims;
  if (r.kind != PlanKind::hcc_ipo || r.assignment.empty()) return claims;
  if (r.method != PlanMethod::lpt) {
    claims.push_back(core::format("that {} with seed {} found the plan", to_string(r.method), r.seed));
  } else if (r.peak > r.lower_bound) {
    claims.push_back(core::format("that a search with seed {} ended no lower than lpt", r.seed));
  }
  if (r.nodes > 1 && !r.needs.empty()) {
    claims.push_back(core::format("that epsilon {} was asked for", static_cast<double>(r.epsilon_millionths) / 1e6));
  }
  if (r.method != PlanMethod::lpt && !dealt_again(r)) claims.push_back("that lpt ends no lower");
  if (r.method == PlanMethod::hierarchy && r.peak > allowed(r)) {
    claims.push_back(core::format("that the plan without nodes ended at {} too, above (1 + epsilon) x lower_bound = {}",
                                  r.peak, allowed(r)));
  }
  return claims;
}

}  // namespace flashmask::balancing
