// The edges of a tile map: the last row, the padding behind the last column, the largest extents.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "flashmask/error.hpp"
#include "sm90/tile_map/host_map.hpp"

namespace flashmask::sm90 {
namespace {

TEST(BitmapWord, speaks_of_the_rows_that_exist_and_of_no_other) {
  const auto hides_nothing = [](std::int32_t) { return HiddenRows{1 << 30, 0, 0, 0}; };
  for (std::int32_t rows = 1; rows <= 80; ++rows) {
    const TileGrid grid = tile_grid(rows, 16, {64, 16});
    for (std::int32_t tile = 0; tile < grid.row_tiles; ++tile) {
      for (std::int32_t t = 0; t < subtile_threads; ++t) {
        const std::uint64_t word = bitmap_word(grid, tile, t, hides_nothing);
        for (std::int32_t i = 0; i < 8; ++i) {
          const bool exists = tile * 64 + accumulator_row(t, i) < rows;
          ASSERT_EQ(word >> bitmap_bit(i) & 1U, exists ? 1U : 0U) << rows << " rows, thread " << t << ", element " << i;
        }
      }
    }
  }
}

TEST(HostTileMap, the_one_run_of_a_list_that_fell_back_stays_inside_two_padded_blocks) {
  // A packed row tile that sees columns 48 and 159 alone: the run starts at unit 3 and, in steps of five, its last
  // block at unit 13, most of two blocks beyond the 160 columns.
  constexpr std::int32_t rows = 24, columns = 160;
  std::vector<std::int32_t> lts(columns, 0), lte(columns, rows), none(columns, 0);
  lte[48] = lte[159] = 0;
  const MaskView mask{lts.data(), lte.data(), none.data(), none.data(), {1, 1, rows, columns}};
  const HostTileMap map = HostTileMap::build(mask, {24, 80}, {}, {}, {.packed_heads = 8});
  const TileMapView view = map.view();
  ASSERT_EQ(view.row_run_count[0], 1);
  const sm90::Run run = view.row_runs[view.row_run_begin[0]];
  const std::int32_t end = run.first * unit_columns + run.count * view.block_n;
  EXPECT_EQ(end, 288);
  EXPECT_LE(end, view.padded_columns);
  EXPECT_EQ(view.padded_columns, columns + 2 * view.block_n);
}

TEST(HostTileMap, extents_whose_products_leave_int64_are_refused) {
  EXPECT_THROW(check_map_shape({1 << 30, 1 << 30, 3072, 1280}, {192, 80}), Error);
  EXPECT_THROW(check_map_shape({2147483647, 2147483647, 768, 320}, {192, 80}), Error);
  EXPECT_THROW(check_map_shape({std::int64_t{1} << 62, 4, 64, 64}, {64, 64}), Error);
  EXPECT_THROW(check_map_shape({1 << 30, 1, 0, 0}, {64, 64}), Error);
  EXPECT_NO_THROW(check_map_shape({1 << 15, 1 << 14, 64, 64}, {64, 64}));
}

}  // namespace
}  // namespace flashmask::sm90
