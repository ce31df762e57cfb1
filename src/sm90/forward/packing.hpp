// Packed heads: which mask row and head an accumulator row of a row tile stands for. Row r is head r % packed_heads of
// mask row r / packed_heads, and packed_heads divides 16; what follows says the same for the strips and halves that
// roles work on.
#pragma once

#include <cstdint>

#include "flashmask/host_device.hpp"

namespace flashmask::sm90::forward_pass {

/// A mask row and a head, counted from the first ones of a row tile (or of a strip).
struct PackedPlace {
  std::int32_t row, head;
  friend constexpr bool operator==(const PackedPlace&, const PackedPlace&) = default;
};

/// Mask row of the first of the 16 accumulator rows of consumer warp `warp`; its head is the first one.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t strip_start(std::int32_t warp, std::int32_t packed_heads) {
  return 16 / packed_heads * warp;
}

/// Row i of a warp's 16, from the strip's start.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr PackedPlace in_strip(std::int32_t i, std::int32_t packed_heads) {
  return {i / packed_heads, i % packed_heads};
}

/// Mask row of the first of the 32 accumulator rows from 64 * subtile + 32 * half.
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t half_start(std::int32_t subtile, std::int32_t half,
                                                                      std::int32_t packed_heads) {
  return 64 / packed_heads * subtile + 32 / packed_heads * half;
}

/// Bit r of the result is bit r / PackedHeads of `rows`, for 32 accumulator rows of PackedHeads heads a mask row.
template <std::int32_t PackedHeads>
[[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::uint32_t spread_rows(std::uint32_t rows) {
  if constexpr (PackedHeads == 1) {
    return rows;
  } else {
    constexpr std::uint32_t heads = (1U << PackedHeads) - 1U;
    std::uint32_t spread = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (std::int32_t row = 0; row < 32 / PackedHeads; ++row) {
      spread |= (rows >> row & 1U) * (heads << (row * PackedHeads));
    }
    return spread;
  }
}

}  // namespace flashmask::sm90::forward_pass
