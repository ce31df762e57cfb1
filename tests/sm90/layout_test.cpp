// The address arithmetic of the kernels against the tables of the PTX ISA: bijective, conflict free, equal.
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "sm90/layout/descriptor.hpp"
#include "sm90/layout/fragment.hpp"
#include "sm90/layout/swizzle.hpp"
#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90::layout {
namespace {

TEST(Swizzle, is_an_involution_inside_each_1024_bytes) {
  for (std::uint32_t offset = 0; offset < 8192; ++offset) {
    EXPECT_EQ(swizzle_128b(swizzle_128b(offset)), offset);
    EXPECT_EQ(swizzle_128b(offset) / row_bytes, offset / row_bytes);
    EXPECT_EQ(swizzle_128b(offset) % 16, offset % 16);
  }
}

TEST(Swizzle, equals_the_chunk_table_of_the_ptx_isa) {
  // Row r of the eight rows holds the 16-byte chunks 0..7 at the places 0^r .. 7^r.
  for (std::uint32_t row = 0; row < 8; ++row)
    for (std::uint32_t chunk = 0; chunk < 8; ++chunk)
      EXPECT_EQ(swizzle_128b(row * 128 + chunk * 16), row * 128 + (chunk ^ row) * 16);
}

TEST(Swizzle, a_tile_is_filled_exactly_once) {
  for (const std::uint32_t rows : {64U, 80U, 128U, 192U}) {
    for (const std::uint32_t columns : {64U, 128U}) {
      std::vector<int> bytes(tile_bytes(rows, columns) / 2, 0);
      for (std::uint32_t r = 0; r < rows; ++r)
        for (std::uint32_t c = 0; c < columns; ++c) ++bytes.at(tile_offset(r, c, rows) / 2);
      for (const int count : bytes) ASSERT_EQ(count, 1);
    }
  }
}

TEST(Swizzle, eight_rows_of_one_column_chunk_touch_all_banks) {
  // ldmatrix and stmatrix move eight 16-byte rows at once: together they must cover the 32 banks.
  for (std::uint32_t column = 0; column < 64; column += 8) {
    std::set<std::uint32_t> banks;
    for (std::uint32_t row = 0; row < 8; ++row)
      for (std::uint32_t word = 0; word < 4; ++word) banks.insert((tile_offset(row, column, 64) / 4 + word) % 32);
    EXPECT_EQ(banks.size(), 32U);
  }
}

TEST(Fragment, accumulator_is_a_bijection_onto_64_by_n) {
  for (const std::uint32_t n : {64U, 80U, 96U, 128U, 176U, 192U, 256U}) {
    std::set<std::pair<std::uint32_t, std::uint32_t>> cells;
    for (std::uint32_t thread = 0; thread < 128; ++thread)
      for (std::uint32_t i = 0; i < n / 2; ++i) {
        const Cell cell = accumulator_cell(thread, i);
        EXPECT_LT(cell.row, 64U);
        EXPECT_LT(cell.column, n);
        cells.insert({cell.row, cell.column});
      }
    EXPECT_EQ(cells.size(), std::size_t{64} * n);
  }
}

TEST(Fragment, accumulator_equals_the_figure_of_the_ptx_isa) {
  EXPECT_EQ(accumulator_cell(0, 0), (Cell{0, 0}));
  EXPECT_EQ(accumulator_cell(0, 1), (Cell{0, 1}));
  EXPECT_EQ(accumulator_cell(0, 2), (Cell{8, 0}));
  EXPECT_EQ(accumulator_cell(0, 4), (Cell{0, 8}));
  EXPECT_EQ(accumulator_cell(3, 0), (Cell{0, 6}));
  EXPECT_EQ(accumulator_cell(4, 0), (Cell{1, 0}));
  EXPECT_EQ(accumulator_cell(31, 3), (Cell{15, 7}));
  EXPECT_EQ(accumulator_cell(32, 0), (Cell{16, 0}));
  EXPECT_EQ(accumulator_cell(127, 7), (Cell{63, 15}));
}

TEST(Fragment, accumulator_agrees_with_the_tile_map_bitmaps) {
  for (std::uint32_t thread = 0; thread < 384; ++thread)
    for (std::uint32_t i = 0; i < 64; ++i) {
      EXPECT_EQ(static_cast<std::uint32_t>(sm90::accumulator_row(static_cast<int>(thread), static_cast<int>(i))),
                thread / 128 * 64 + accumulator_row(thread % 128, i));
      EXPECT_EQ(static_cast<std::uint32_t>(sm90::accumulator_column(static_cast<int>(thread), static_cast<int>(i))),
                accumulator_column(thread % 128, i));
    }
}

TEST(Fragment, accumulators_packed_in_pairs_are_the_a_operand_of_the_next_product) {
  // Registers 8k .. 8k+7 of S hold exactly the A fragment of contraction step k: P needs no shuffle.
  for (std::uint32_t thread = 0; thread < 128; ++thread)
    for (std::uint32_t k = 0; k < 8; ++k)
      for (std::uint32_t e = 0; e < 8; ++e) {
        const Cell s = accumulator_cell(thread, 8 * k + e);
        const Cell a = operand_a_cell(thread, e);
        EXPECT_EQ(s, (Cell{a.row, 16 * k + a.column}));
      }
}

TEST(Fragment, matrix_x4_is_the_a_operand_and_the_accumulator_order) {
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint32_t matrix = 0; matrix < 4; ++matrix)
      for (std::uint32_t e = 0; e < 2; ++e) {
        const Cell inner = matrix_cell(lane, e);
        const Cell a = operand_a_cell(lane, matrix * 2 + e);
        EXPECT_EQ(a, (Cell{matrix % 2 * 8 + inner.row, matrix / 2 * 8 + inner.column}));
        const std::uint32_t row_lane = matrix * 8 + inner.row;  // the lane that names this row's address
        EXPECT_EQ(matrix_x4_offset(row_lane, 16, 32, 64) + inner.column * 2,
                  tile_offset(16 + a.row, 32 + a.column, 64));
      }
}

TEST(Descriptor, fields_stand_where_the_ptx_isa_puts_them) {
  const std::uint64_t d = descriptor(0x12340, 0x2800, 1024);
  EXPECT_EQ(d & 0x3FFFU, 0x1234U);
  EXPECT_EQ((d >> 16) & 0x3FFFU, 0x280U);
  EXPECT_EQ((d >> 32) & 0x3FFFU, 64U);
  EXPECT_EQ((d >> 49) & 7U, 0U);
  EXPECT_EQ(d >> 62, 1U);
}

TEST(Descriptor, operands_say_their_swizzle_and_strides_bit_by_bit) {
  constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62, groups_of_eight_rows = std::uint64_t{1024 / 16} << 32;
  EXPECT_EQ(k_major_descriptor(0), swizzle_128 | groups_of_eight_rows | std::uint64_t{1} << 16);
  EXPECT_EQ(k_major_descriptor(0x12400), k_major_descriptor(0) | 0x1240U);
  for (const std::uint32_t rows : {64U, 80U, 128U}) {
    EXPECT_EQ(mn_major_descriptor(0, rows),
              swizzle_128 | groups_of_eight_rows | std::uint64_t{rows * row_bytes / 16} << 16);
  }
  EXPECT_EQ(mn_major_descriptor(0x12400, 64), mn_major_descriptor(0, 64) | 0x1240U);
  EXPECT_EQ(k_major_descriptor(0x40000 + 0x400), k_major_descriptor(0x400));  // 18 bits of the address
}

TEST(Descriptor, steps_reach_the_first_element_of_each_contraction_slice) {
  for (const std::uint32_t rows : {64U, 80U, 192U}) {
    for (std::uint32_t k = 0; k < 8; ++k) {
      // K-major: row 0 of the slice lies unswizzled at its own offset, since row 0 is not permuted.
      EXPECT_EQ(k_major_step(k, rows) * 16, tile_offset(0, 16 * k, rows));
    }
    for (std::uint32_t k = 0; k < rows / 16; ++k) EXPECT_EQ(mn_major_step(k) * 16, tile_offset(16 * k, 0, rows));
    EXPECT_EQ(((mn_major_descriptor(0, rows) >> 16) & 0x3FFFU) * 16, tile_offset(0, 64, rows));
    EXPECT_EQ(row_step(64) * 16, tile_offset(64, 0, rows));
  }
}

}  // namespace
}  // namespace flashmask::sm90::layout
