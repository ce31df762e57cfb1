// Which element sits in which register (PTX ISA, "Register fragments" of wgmma m64nNk16, ldmatrix and stmatrix).
#pragma once

#include <cstdint>

#include "flashmask/host_device.hpp"
#include "sm90/layout/swizzle.hpp"

namespace flashmask::sm90::layout {

struct Cell {
  std::uint32_t row;
  std::uint32_t column;
  friend constexpr bool operator==(const Cell&, const Cell&) = default;
};

/// Row inside the 64-row tile of accumulator register `i` of `thread` (0 to 127): two rows a thread, 8 apart.
FLASHMASK_HOST_DEVICE constexpr std::uint32_t accumulator_row(std::uint32_t thread, std::uint32_t i) {
  return thread / 32 * 16 + thread % 32 / 4 + (i >> 1 & 1) * 8;
}

/// Column of accumulator register `i` of `thread`.
FLASHMASK_HOST_DEVICE constexpr std::uint32_t accumulator_column(std::uint32_t thread, std::uint32_t i) {
  return (i >> 2) * 8 + thread % 4 * 2 + (i & 1);
}

FLASHMASK_HOST_DEVICE constexpr Cell accumulator_cell(std::uint32_t thread, std::uint32_t i) {
  return {accumulator_row(thread, i), accumulator_column(thread, i)};
}

/// Element `e` (0 to 7: register e / 2, low or high 16 bits) of the A operand of one k16 step, 64 x 16, of `thread`.
FLASHMASK_HOST_DEVICE constexpr Cell operand_a_cell(std::uint32_t thread, std::uint32_t e) {
  const std::uint32_t reg = e / 2;
  return {thread / 32 * 16 + thread % 32 / 4 + reg % 2 * 8, reg / 2 * 8 + thread % 4 * 2 + e % 2};
}

/// Byte offset that `lane` gives to stmatrix.x4 or ldmatrix.x4 so that the four matrices are the 16 x 16 block whose
/// rows start at `row` and columns at `column` of a swizzled tile: matrices 0, 1 are rows 0-7, 8-15 of the first eight
/// columns, matrices 2, 3 those of the next eight. This is the order of an accumulator's four 8 x 8 pieces and of the
/// four registers of an A operand.
FLASHMASK_HOST_DEVICE constexpr std::uint32_t matrix_x4_offset(std::uint32_t lane, std::uint32_t row,
                                                               std::uint32_t column, std::uint32_t rows) {
  return tile_offset(row + lane % 16, column + lane / 16 * 8, rows);
}

/// Element `e` (0 or 1) that `lane` holds of an 8 x 8 matrix of ldmatrix or stmatrix.
FLASHMASK_HOST_DEVICE constexpr Cell matrix_cell(std::uint32_t lane, std::uint32_t e) {
  return {lane / 4, lane % 4 * 2 + e};
}

}  // namespace flashmask::sm90::layout
