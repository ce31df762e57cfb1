// The residue bound: mask loads sit on a lattice, and a peak between two lattice points is out of reach.
#pragma once

#include "balance/bounds.hpp"

namespace flashmask::balancing {

/// `bound`, or a larger one where the residue argument refutes that (docs/balance.md), with the lattice that refutes
/// the target below. Equal speeds only. O(chunks) for each of a handful of moduli.
Bound residue_bound(const Instance& instance, const Bound& bound);

}  // namespace flashmask::balancing
