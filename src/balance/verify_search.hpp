// What a plan by search says of itself: what its own numbers refute of that, and what remains its word.
#pragma once

#include <string>
#include <vector>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

/// Why the peak of a record of kind hcc_ipo cannot be that of its method, measured against the plan of LPT from which
/// every search starts; empty: nothing. Chunk counts, loads and peak must be right.
std::string search_finding(const PlanRecord& record);

/// What only the search itself could confirm, one phrase each; empty: nothing.
std::vector<std::string> search_claims(const PlanRecord& record);

}  // namespace flashmask::balancing
