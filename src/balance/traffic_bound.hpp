// What no plan can do better: a lower bound on the worst node's inbound traffic (docs/balance.md has the proof).
#pragma once

#include <cstdint>
#include <span>

#include "balance/instance.hpp"

namespace flashmask::balancing {

/// No assignment in which every rank stays within the normalised `target` has a worst inbound traffic (weighted units,
/// as NodeTraffic counts them) below the result. For tables, not for the search: O(chunks^2) a document.
std::int64_t inbound_lower_bound(const Instance& instance, std::span<const NeedSets> needs, std::int64_t nodes,
                                 std::int64_t target);

}  // namespace flashmask::balancing
