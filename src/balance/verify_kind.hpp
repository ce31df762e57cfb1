// Whether an assignment is what its plan kind says, for the kinds that a rule defines.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

/// What is wrong with kind, method, seed and epsilon of a record whose chunks are all owned; empty: nothing.
/// contiguous, dual_chunk and per_document_dual_chunk are read off the assignment chunk by chunk; `documents` (lengths
/// in tokens), when given, must be those of the last of the three. lpt and hcc_ipo are searches: any assignment may be
/// theirs.
std::string kind_finding(const PlanRecord& record, std::span<const std::int64_t> documents);

}  // namespace flashmask::balancing
