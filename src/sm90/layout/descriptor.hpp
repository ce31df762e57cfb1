// wgmma matrix descriptors for 128-byte swizzled tiles (PTX ISA, "Matrix descriptor format").
//
// Bits 0-13 address >> 4, 16-29 leading byte offset >> 4, 32-45 stride byte offset >> 4, 62-63 swizzle (1 = 128 bytes).
// K-major tile (contraction along the 128-byte rows): the stride offset is the 1024 bytes between groups of eight rows,
// the leading offset is not used. MN-major tile (rows of A or columns of B along the 128-byte rows): the leading offset
// is the step between two 64-element halves, the stride offset the 1024 bytes between eight contraction indices.
#pragma once

#include <cstdint>

#include "flashmask/host_device.hpp"
#include "sm90/layout/swizzle.hpp"

namespace flashmask::sm90::layout {

FLASHMASK_HOST_DEVICE constexpr std::uint64_t descriptor(std::uint32_t address, std::uint32_t leading_bytes,
                                                         std::uint32_t stride_bytes) {
  return static_cast<std::uint64_t>((address & 0x3FFFFU) >> 4) |
         (static_cast<std::uint64_t>(leading_bytes >> 4) << 16) |
         (static_cast<std::uint64_t>(stride_bytes >> 4) << 32) | (std::uint64_t{1} << 62);
}

/// Operand with the contraction along its 128-byte rows.
FLASHMASK_HOST_DEVICE constexpr std::uint64_t k_major_descriptor(std::uint32_t address) {
  return descriptor(address, 16, 1024);
}

/// Operand with the contraction across its 128-byte rows; `rows` rows in each half of the tile.
FLASHMASK_HOST_DEVICE constexpr std::uint64_t mn_major_descriptor(std::uint32_t address, std::uint32_t rows) {
  return descriptor(address, rows * row_bytes, 1024);
}

/// What to add to a K-major descriptor for contraction step `k` of 16 (tile of `rows` rows): 32 bytes inside the row,
/// the next half after four steps.
FLASHMASK_HOST_DEVICE constexpr std::uint64_t k_major_step(std::uint32_t k, std::uint32_t rows) {
  return ((k % 4) * 32 + (k / 4) * rows * row_bytes) >> 4;
}

/// What to add to an MN-major descriptor for contraction step `k` of 16: sixteen rows of 128 bytes.
FLASHMASK_HOST_DEVICE constexpr std::uint64_t mn_major_step(std::uint32_t k) {
  return (k * 16 * row_bytes) >> 4;
}

/// What to add to any descriptor to move down by `rows` rows (a multiple of eight).
FLASHMASK_HOST_DEVICE constexpr std::uint64_t row_step(std::uint32_t rows) {
  return (rows * row_bytes) >> 4;
}

}  // namespace flashmask::sm90::layout
