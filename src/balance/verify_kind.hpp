// Whether an assignment is what its plan kind says, for the kinds that a rule defines.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

/// The load of every rank under `assignment`.
std::vector<std::int64_t> rank_sums(const PlanRecord& record, std::span<const std::int64_t> assignment);

/// When the last of the record's ranks ends if they hold `sums`, at the pace of the fastest, rounded up.
std::int64_t last_end(const PlanRecord& record, std::span<const std::int64_t> sums);

/// The rank of every chunk when LPT deals them out to ranks with as many chunks each as `record` gives them.
std::vector<std::int64_t> lpt_assignment(const PlanRecord& record);

/// What is wrong with kind, method, unit, seed and epsilon of a record whose chunks are all owned; empty: nothing.
/// contiguous, dual_chunk, per_document_dual_chunk and lpt (as a kind or as the method of hcc_ipo) are read off the
/// assignment chunk by chunk; `documents` (lengths in tokens), when given, must be those of per_document_dual_chunk.
/// What else hcc_ipo found can be any assignment, but each method has sizes it speaks about.
std::string kind_finding(const PlanRecord& record, std::span<const std::int64_t> documents);

/// Whether a complete search could have run on the sizes of this record, and in words what it takes.
bool search_fits(const PlanRecord& record);
inline constexpr const char* kSearchTakes = "at most 64 chunks, 1 to 5 a rank, without speeds";

}  // namespace flashmask::balancing
