// The one rule for tensors that are written: no two elements at one address.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace flashmask::core {

/// Whether every stride is positive and, in ascending order, steps over all that the smaller ones reach: then no two
/// elements share an address. Extents are positive, and what the strides reach in all fits an int64.
inline bool strides_keep_apart(const std::array<std::int64_t, 4>& strides, const std::array<std::int64_t, 4>& extents) {
  std::array<std::size_t, 4> order{0, 1, 2, 3};
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  std::int64_t reach = 0;
  for (const std::size_t axis : order) {
    if (extents[axis] == 1) continue;  // never followed
    if (strides[axis] <= reach) return false;
    reach += strides[axis] * (extents[axis] - 1);
  }
  return true;
}

}  // namespace flashmask::core
