// ldmatrix and stmatrix: four 8x8 matrices of 16-bit elements between shared memory and the fragments of a warp.
#pragma once

#include <cstdint>

namespace flashmask::sm90::ptx {

/// ldmatrix.x4: lane l gives the address of row l%8 of matrix l/8 (16 bytes, aligned).
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t address, std::uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// ldmatrix.x4.trans: every matrix is transposed on the way.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t address, std::uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// stmatrix.x4: lane l gives the address of row l%8 of matrix l/8 (16 bytes, aligned).
__device__ __forceinline__ void stmatrix_x4(std::uint32_t address, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                            std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

/// stmatrix.x4.trans: every matrix is transposed on the way.
__device__ __forceinline__ void stmatrix_x4_trans(std::uint32_t address, std::uint32_t a, std::uint32_t b,
                                                  std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

}  // namespace flashmask::sm90::ptx
