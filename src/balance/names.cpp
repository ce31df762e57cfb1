// Words for the enumerations of balance.hpp.
#include <array>

#include "core/check.hpp"
#include "flashmask/balance.hpp"

namespace flashmask {

std::string_view to_string(PlanKind kind) {
  constexpr std::array<std::string_view, 5> names{"hcc_ipo", "contiguous", "dual_chunk", "per_document_dual_chunk",
                                                  "lpt"};
  return names.at(static_cast<std::size_t>(kind));
}

PlanKind plan_kind(std::string_view name) {
  for (int k = 0; k < 5; ++k) {
    if (name == to_string(static_cast<PlanKind>(k))) return static_cast<PlanKind>(k);
  }
  core::fail(ErrorCode::invalid_argument,
             "kind = '{}': must be hcc_ipo, contiguous, dual_chunk, per_document_dual_chunk or lpt", name);
}

std::string_view to_string(PlanMethod method) {
  constexpr std::array<std::string_view, 8> names{"layout",  "lpt",   "bldm",      "pairs",
                                                  "triples", "exact", "hierarchy", "fill"};
  return names.at(static_cast<std::size_t>(method));
}

std::string_view to_string(BoundBy by) {
  constexpr std::array<std::string_view, 7> names{"average", "pigeonhole", "covering", "incompatible",
                                                  "residue", "search",     "counts"};
  return names.at(static_cast<std::size_t>(by));
}

std::string_view to_string(WorkUnit unit) {
  constexpr std::array<std::string_view, 3> names{"bare", "cells", "tiles"};
  return names.at(static_cast<std::size_t>(unit));
}

}  // namespace flashmask
