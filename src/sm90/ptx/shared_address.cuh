// 32-bit addresses of the shared state space. Every function of ptx/ takes these instead of generic pointers: they cost
// one register, add and compare cheaply, and stay uniform across a warp.
#pragma once

#include <cstdint>

namespace flashmask::sm90::ptx {

/// Address in the shared window of this CTA of a generic pointer into shared memory.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// ld.shared: one 32-bit word.
__device__ __forceinline__ std::uint32_t load_shared_u32(std::uint32_t address) {
  std::uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

/// ld.shared.v4: four 32-bit words from a 16-byte aligned address.
__device__ __forceinline__ void load_shared_v4(std::uint32_t address, std::int32_t (&value)[4]) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
               : "r"(address)
               : "memory");
}

/// ld.shared.v2: two 32-bit words from an 8-byte aligned address.
__device__ __forceinline__ void load_shared_v2(std::uint32_t address, std::int32_t (&value)[2]) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(value[0]), "=r"(value[1]) : "r"(address) : "memory");
}

/// st.shared: one 32-bit word.
__device__ __forceinline__ void store_shared_u32(std::uint32_t address, std::uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

/// st.shared.v2: two 32-bit words to an 8-byte aligned address.
__device__ __forceinline__ void store_shared_v2(std::uint32_t address, std::uint32_t a, std::uint32_t b) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b) : "memory");
}

/// st.shared.v4: four 32-bit words to a 16-byte aligned address.
__device__ __forceinline__ void store_shared_v4(std::uint32_t address, std::uint32_t a, std::uint32_t b,
                                                std::uint32_t c, std::uint32_t d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

}  // namespace flashmask::sm90::ptx
