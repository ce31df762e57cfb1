// The residue bound: mask loads sit on a lattice, and a peak between two lattice points is out of reach.
#pragma once

#include <cstdint>

#include "balance/instance.hpp"

namespace flashmask::balancing {

/// Smallest target >= `bound` that the residue argument does not refute (docs/balance.md). Equal speeds only; returns
/// `bound` otherwise. O(chunks) for each of a handful of moduli.
std::int64_t residue_bound(const Instance& instance, std::int64_t bound);

}  // namespace flashmask::balancing
