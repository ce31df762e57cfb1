// Column intervals as bits over the rows a thread holds of S^T.
#pragma once

#include <cstdint>

#include "flashmask/host_device.hpp"

namespace flashmask::sm90::backward_pass {

/// How many of the 16 rows base + {0, 1, 8, 9, 16, 17, ...} lie below `row`.
FLASHMASK_HOST_DEVICE constexpr std::uint32_t rows_below(std::int32_t row, std::int32_t base) {
  const std::int32_t distance = row <= base ? 0 : (row - base >= 64 ? 64 : row - base);
  const std::int32_t rest = distance % 8;
  return static_cast<std::uint32_t>(distance / 8 * 2 + (rest < 2 ? rest : 2));
}

/// Bit n: row n of those 16 is visible for a column with these intervals.
FLASHMASK_HOST_DEVICE constexpr std::uint32_t visible_rows(std::int32_t lts, std::int32_t lte, std::int32_t uts,
                                                           std::int32_t ute, std::int32_t base) {
  const std::uint32_t lower = ((1U << rows_below(lte, base)) - 1U) & ~((1U << rows_below(lts, base)) - 1U);
  const std::uint32_t upper = ((1U << rows_below(ute, base)) - 1U) & ~((1U << rows_below(uts, base)) - 1U);
  return ~(lower | upper) & 0xFFFFU;
}

}  // namespace flashmask::sm90::backward_pass
