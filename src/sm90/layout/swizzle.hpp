// The 128-byte swizzle of shared-memory tiles, as TMA writes and wgmma reads it (PTX ISA, "Swizzling modes").
//
// A tile of 16-bit elements is stored as [half][row][64 elements]: rows of 128 bytes, `half` the 64-element slice along
// the contiguous direction. Inside each group of eight rows the eight 16-byte chunks of a row are permuted by
// chunk ^ (row % 8). Tiles start at multiples of 1024 bytes, so the permutation can be read off the address.
#pragma once

#include <cstdint>

#include "flashmask/host_device.hpp"

namespace flashmask::sm90::layout {

inline constexpr std::uint32_t row_bytes = 128;        ///< one row of a half
inline constexpr std::uint32_t elements_per_row = 64;  ///< 16-bit elements in a row
inline constexpr std::uint32_t tile_alignment = 1024;  ///< period of the swizzle

/// Permutes a byte offset inside a tile that starts at a multiple of 1024 bytes: address bits 4-6 ^= bits 7-9.
FLASHMASK_HOST_DEVICE constexpr std::uint32_t swizzle_128b(std::uint32_t offset) {
  return offset ^ ((offset >> 3) & 0x70U);
}

/// Byte offset of element (row, column) in a tile of `rows` rows.
FLASHMASK_HOST_DEVICE constexpr std::uint32_t tile_offset(std::uint32_t row, std::uint32_t column, std::uint32_t rows) {
  const std::uint32_t half = column / elements_per_row;
  return half * rows * row_bytes + swizzle_128b(row * row_bytes + column % elements_per_row * 2);
}

/// Bytes of a tile of `rows` rows and `columns` 16-bit elements (columns rounded up to whole halves).
FLASHMASK_HOST_DEVICE constexpr std::uint32_t tile_bytes(std::uint32_t rows, std::uint32_t columns) {
  return (columns + elements_per_row - 1) / elements_per_row * rows * row_bytes;
}

}  // namespace flashmask::sm90::layout
