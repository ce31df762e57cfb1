// What a thread sees of a partial block: one bit per accumulator element, from the tile map's bitmap or the intervals.
#pragma once

#include <cstdint>

#include "sm90/forward/parameters.hpp"
#include "sm90/forward/products.cuh"
#include "sm90/layout/fragment.hpp"

namespace flashmask::sm90::forward_pass {

/// Bits of this thread's elements of `block`, computed from the mask vectors. `row` is this thread's first row.
template <ForwardConfig C>
__device__ __forceinline__ std::uint64_t bits_from_intervals(const TileMapView& map, std::int32_t matrix,
                                                             std::int32_t row, std::int32_t block) {
  const std::int64_t first = static_cast<std::int64_t>(matrix) * map.padded_columns + block * C.block_n +
                             static_cast<std::int32_t>(ptx::lane_index() % 4 * 2);
  std::uint64_t bits = 0;
#pragma unroll 1
  for (std::int32_t group = 0; group < C.block_n / 8; ++group) {
    const std::int64_t column = first + group * 8;
    const int2 lts = __ldg(reinterpret_cast<const int2*>(map.lts + column));
    const int2 lte = __ldg(reinterpret_cast<const int2*>(map.lte + column));
    const int2 uts = __ldg(reinterpret_cast<const int2*>(map.uts + column));
    const int2 ute = __ldg(reinterpret_cast<const int2*>(map.ute + column));
    const HiddenRows even{lts.x, lte.x, uts.x, ute.x};
    const HiddenRows odd{lts.y, lte.y, uts.y, ute.y};
    const std::uint32_t four =
        (even.hides(row) || row >= map.rows ? 0U : 1U) | (odd.hides(row) || row >= map.rows ? 0U : 2U) |
        (even.hides(row + 8) || row + 8 >= map.rows ? 0U : 4U) | (odd.hides(row + 8) || row + 8 >= map.rows ? 0U : 8U);
    bits |= static_cast<std::uint64_t>(four) << (4 * group);
  }
  return bits;
}

/// Hidden scores become -inf.
template <ForwardConfig C>
__device__ __forceinline__ void apply_visibility(Fragments<C>& f, std::uint64_t bits) {
  const auto low = static_cast<std::uint32_t>(bits);
  const auto high = static_cast<std::uint32_t>(bits >> 32);
#pragma unroll
  for (std::int32_t i = 0; i < C.block_n / 2; ++i) {
    const std::uint32_t word = i < 32 ? low : high;
    f.s[i] = (word & (1U << (i % 32))) != 0 ? f.s[i] : -__builtin_huge_valf();
  }
}

}  // namespace flashmask::sm90::forward_pass
