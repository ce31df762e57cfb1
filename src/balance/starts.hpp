// Starting assignments.
#pragma once

#include "balance/state.hpp"

namespace flashmask::balancing {

/// Largest load first, each to the rank that ends earliest among those with a free slot. O(chunks log ranks).
State lpt(const Instance& instance);

/// Balanced largest-first differencing: runs of `ranks` chunks in order of load, the two with the widest spread merged
/// heavy against light until one remains. Equal speeds only. O(chunks log ranks).
State bldm(const Instance& instance);

/// Ranks filled one after the other: each takes the heaviest chunk left, then as heavy ones as `target` and the room
/// for the lightest others allow. Meets tight targets where one heavy chunk a rank needs light company, and leaves the
/// last ranks far above or below the target otherwise. Equal speeds only. O(chunks log chunks).
State fill(const Instance& instance, std::int64_t target);

}  // namespace flashmask::balancing
