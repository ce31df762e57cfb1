// Integer instructions whose exact meaning C++ does not offer.
#pragma once

#include <cstdint>

namespace flashmask::sm90::ptx {

/// shl.b32: amounts of 32 and more give 0.
__device__ __forceinline__ std::uint32_t shift_left(std::uint32_t x, std::uint32_t amount) {
  std::uint32_t y;
  asm("shl.b32 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(amount));
  return y;
}

/// prefetch.global.L1 of the cache line at `address`.
__device__ __forceinline__ void prefetch_l1(const void* address) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}

}  // namespace flashmask::sm90::ptx
