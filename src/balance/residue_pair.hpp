// The residue bound for loads of two classes: documents that begin at different offsets each have their own lattice.
#pragma once

#include <cstdint>

#include "balance/bounds.hpp"

namespace flashmask::balancing {

/// `bound`, or a larger one that the argument over two residue classes shows (docs/balance.md), with modulus and both
/// rests. Only targets below `peak` are looked at. Equal counts and speeds only. O(chunks log) for a handful of moduli.
Bound residue_pair_bound(const Instance& instance, const Bound& bound, std::int64_t peak);

}  // namespace flashmask::balancing
