// An independent look at a plan: plain loops, nothing shared with the search that made it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

/// How the lower bound was confirmed.
enum class BoundCheck : std::uint8_t {
  trivial,        ///< it is 0, and loads are not negative
  recomputed,     ///< a target one below it was refuted again by one of the published arguments
  searched,       ///< a target one below it was refuted again by a complete search of the verifier's own
  not_rechecked,  ///< it rests on a complete search too long to repeat here, or on a lattice that is not named
};
std::string_view to_string(BoundCheck check);

struct Verification {
  std::vector<std::string> findings;  ///< what is wrong, one sentence each; empty: nothing
  BoundCheck bound = BoundCheck::not_rechecked;
  std::string not_rechecked;  ///< the claim that could be neither confirmed nor refuted, one sentence; empty: none
  std::vector<std::string> claims;  ///< what is taken from the file, one phrase each: how the plan was searched
  bool against_masks = false;       ///< loads and need sets were recomputed from masks
  [[nodiscard]] bool passed() const { return findings.empty(); }  ///< nothing is wrong; see `not_rechecked` too
};

/// Checks that every chunk is owned once and every rank owns as many as it should, that the assignment is what its kind
/// says, that the peak is one its method can end at and the bound the strongest of the arguments, recomputes rank
/// loads, peak, bound and traffic from the record alone and, when `masks` are given, chunk loads and need sets from
/// them under `options`. `documents`: lengths in tokens, when known, for per_document_dual_chunk.
Verification verify(const PlanRecord& record, std::span<const WeightedMask> masks, const WorkloadOptions& options,
                    std::span<const std::int64_t> documents = {});

}  // namespace flashmask::balancing
