// Starting assignments.
#pragma once

#include "balance/state.hpp"

namespace flashmask::balancing {

/// Largest load first, each to the rank that ends earliest among those with a free slot. O(chunks log ranks).
State lpt(const Instance& instance);

/// Balanced largest-first differencing: runs of `ranks` chunks in order of load, the two with the widest spread merged
/// heavy against light until one remains. Equal speeds only. O(chunks log ranks).
State bldm(const Instance& instance);

}  // namespace flashmask::balancing
