// Single words in global memory that other blocks read while they run.
#pragma once

#include <cstdint>

namespace flashmask::sm90::ptx {

/// st.volatile of a 32-bit word: a hint to others, ordered with nothing.
__device__ __forceinline__ void store_volatile(std::uint32_t* address, std::uint32_t value) {
  asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

}  // namespace flashmask::sm90::ptx
