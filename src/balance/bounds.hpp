// Lower bounds on the peak; each with its proof in docs/balance.md.
#pragma once

#include <cstdint>

#include "balance/instance.hpp"

namespace flashmask::balancing {

struct Bound {
  std::int64_t value = 0;  ///< on the normalised target
  BoundBy by = BoundBy::average;
  std::int64_t modulus = 0;  ///< of residue: the lattice of normalised loads that shows it,
  std::int64_t rest = 0;     ///< and a load on it
  std::int64_t other = -1;   ///< a load of a second class, -1: there is one class
};

/// The strongest of average, counts, pigeonhole, incompatible, covering and residue, of equal ones the first. O(chunks
/// log) after the sort.
Bound lower_bound(const Instance& instance);

}  // namespace flashmask::balancing
