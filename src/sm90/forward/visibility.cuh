// What a thread sees of a partial block: one bit an accumulator element, from a bitmap of the tile map or from the mask
// generators; bitmap_bit() says which bit speaks of which element.
#pragma once

#include <cstdint>

#include "sm90/forward/products.cuh"
#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90::forward_pass {

struct Visibility {
  std::uint32_t words[2];
};

/// Hidden scores become -inf.
template <ForwardConfig C>
__device__ __forceinline__ void apply_visibility(Fragments<C>& f, const Visibility& visibility) {
#pragma unroll
  for (std::int32_t i = 0; i < C.block_n / 2; ++i) {
    const std::uint32_t word = visibility.words[bitmap_bit(i) / 32];
    f.s[i] = (word & (1U << (bitmap_bit(i) % 32))) != 0 ? f.s[i] : -__builtin_huge_valf();
  }
}

}  // namespace flashmask::sm90::forward_pass
