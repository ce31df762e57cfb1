// The residue bound: mask loads sit on a lattice, and a peak between two lattice points is out of reach.
#pragma once

#include <cstdint>

#include "balance/bounds.hpp"

namespace flashmask::balancing {

/// Larger common divisors of differences are no part of either residue argument.
inline constexpr std::int64_t kLargestModulus = 1 << 14;

/// x mod g in [0, g).
constexpr std::int64_t modulo(std::int64_t x, std::int64_t g) {
  const std::int64_t rest = x % g;
  return rest < 0 ? rest + g : rest;
}

/// `bound`, or a larger one where the residue argument refutes that (docs/balance.md), with the lattice that refutes
/// the target below. Equal speeds only. O(chunks) for each of a handful of moduli.
Bound residue_bound(const Instance& instance, const Bound& bound);

}  // namespace flashmask::balancing
