// The tile map that the kernels read, built on the host: against the dense mask, cell by cell.
#include "sm90/tile_map/host_map.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "flashmask/error.hpp"
#include "support/mask_families.hpp"

namespace flashmask::sm90 {
namespace {

using flashmask::testing::Random;
using flashmask::testing::random_family_mask;
using flashmask::testing::random_length;
using flashmask::testing::RawMask;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int draws = 60;
#else
constexpr int draws = 400;
#endif

TileShape draw_tile(Random& random) {
  return {flashmask::testing::pick(random, {64, 128, 192, 256}), flashmask::testing::pick(random, {64, 80, 96, 128})};
}

RawMask draw_mask(Random& random) {
  const MaskShape shape{random.integer(1, 2), random.integer(1, 2), random_length(random, 500),
                        random_length(random, 500)};
  return random_family_mask(random, shape);
}

/// Class word of one (list, column block) as the row lists tell it; 0 where no run covers it.
std::uint32_t word_in(const Run* runs, std::int32_t begin, std::int32_t count, std::int32_t block,
                      std::int32_t* bitmap = nullptr) {
  for (std::int32_t r = begin; r < begin + count; ++r) {
    if (block >= runs[r].first && block < runs[r].first + runs[r].count) {
      if (bitmap != nullptr) *bitmap = run_bitmap(runs[r], block - runs[r].first);
      return runs[r].classes & ~shared_bitmap_bit;
    }
  }
  return 0;
}

/// What a kernel that trusts the map would let row i see of column j.
bool seen_through(const TileMapView& v, std::int64_t matrix, std::int32_t i, std::int32_t j, bool by_rows) {
  const std::int32_t tile = i / v.block_m, block = j / v.block_n;
  std::int32_t bitmap = -1;
  const std::int64_t l = by_rows ? matrix * v.row_tiles + tile : matrix * v.column_blocks + block;
  const std::uint32_t word = by_rows ? word_in(v.row_runs, v.row_run_begin[l], v.row_run_count[l], block, &bitmap)
                                     : word_in(v.column_runs, v.column_run_begin[l], v.column_run_count[l], tile);
  const std::int32_t row = i % v.block_m, column = j % v.block_n;
  switch (subtile_class(word, row / 64)) {
    case TileClass::masked:
      return false;
    case TileClass::unmasked:
      return j < v.columns;
    case TileClass::partial:
      break;
  }
  if (bitmap < 0) {
    const std::int64_t c = matrix * v.padded_columns + j;
    return !HiddenRows{v.lts[c], v.lte[c], v.uts[c], v.ute[c]}.hides(i);
  }
  // The thread and element that own (row, column), the inverse of accumulator_row and accumulator_column.
  const std::int32_t t = row / 64 * 128 + row % 64 / 16 * 32 + row % 8 * 4 + column % 8 / 2;
  const std::int32_t e = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
  EXPECT_EQ(accumulator_row(t, e), row);
  EXPECT_EQ(accumulator_column(t, e), column);
  return (v.bitmaps[std::int64_t{bitmap} * 2 * v.block_m + t] >> bitmap_bit(e) & 1U) != 0;
}

void expect_equals_dense(const RawMask& mask, const HostTileMap& map, const std::string& name) {
  const TileMapView v = map.view();
  for (std::int64_t m = 0; m < mask.shape.batch * mask.shape.heads; ++m) {
    for (std::int32_t i = 0; i < v.row_tiles * v.block_m; ++i) {
      for (std::int32_t j = 0; j < v.padded_columns; ++j) {
        const bool inside = i < v.rows && j < v.columns;
        const bool want = inside && mask.visible(m / mask.shape.heads, m % mask.shape.heads, i, j);
        if (i >= v.rows && subtile_class(word_in(v.row_runs, v.row_run_begin[m * v.row_tiles + i / v.block_m],
                                                 v.row_run_count[m * v.row_tiles + i / v.block_m], j / v.block_n),
                                         i % v.block_m / 64) != TileClass::masked) {
          continue;  // a row beyond the end inside a subtile that has rows: never written, so free to compute
        }
        ASSERT_EQ(seen_through(v, m, i, j, true), want)
            << name << " rows: matrix " << m << " row " << i << " column " << j;
        if (i < v.rows) {
          ASSERT_EQ(seen_through(v, m, i, j, false), want)
              << name << " columns: " << m << " row " << i << " column " << j;
        }
      }
    }
  }
}

TEST(HostTileMap, says_of_every_cell_what_the_dense_mask_says) {
  for (int n = 0; n < draws; ++n) {
    Random random(n);
    const RawMask mask = draw_mask(random);
    const TileShape tile = draw_tile(random);
    const HostTileMap map = HostTileMap::build(mask.view(), tile, default_capacity(mask.shape, tile));
    EXPECT_EQ(map.counts().fallback_lists, 0U);
    EXPECT_EQ(map.counts().bitmap_blocks, map.counts().partial_blocks);
    ASSERT_NO_FATAL_FAILURE(expect_equals_dense(mask, map, "draw " + std::to_string(n)));
  }
}

TEST(HostTileMap, too_small_a_capacity_is_slower_but_never_wrong) {
  for (int n = 0; n < draws; ++n) {
    Random random(100000 + n);
    const RawMask mask = draw_mask(random);
    const TileShape tile = draw_tile(random);
    const MapCapacity capacity{static_cast<std::int32_t>(random.integer(0, 6)),
                               static_cast<std::int32_t>(random.integer(0, 6)),
                               static_cast<std::int32_t>(random.integer(0, 6))};
    const HostTileMap map = HostTileMap::build(mask.view(), tile, capacity);
    ASSERT_NO_FATAL_FAILURE(expect_equals_dense(mask, map, "draw " + std::to_string(n)));
  }
}

TEST(HostTileMap, every_list_is_ascending_and_every_order_a_permutation_with_the_heaviest_first) {
  for (int n = 0; n < draws; ++n) {
    Random random(200000 + n);
    const RawMask mask = draw_mask(random);
    const TileShape tile = draw_tile(random);
    const HostTileMap map = HostTileMap::build(mask.view(), tile, default_capacity(mask.shape, tile));
    const TileMapView v = map.view();
    const std::int64_t matrices = mask.shape.batch * mask.shape.heads;
    const auto cost = [&](std::int32_t l) {
      std::int64_t sum = 0;
      std::int32_t end = 0;
      for (std::int32_t r = v.row_run_begin[l]; r < v.row_run_begin[l] + v.row_run_count[l]; ++r) {
        EXPECT_GE(v.row_runs[r].first, end);
        end = v.row_runs[r].first + v.row_runs[r].count;
        sum += v.row_runs[r].count * block_cost(v.row_runs[r].classes, TileCosts{});
      }
      EXPECT_LE(end, v.column_blocks);
      return sum;
    };
    std::set<std::int32_t> seen;
    std::int64_t previous = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t o = 0; o < matrices * v.row_tiles; ++o) {
      seen.insert(v.row_order[o]);
      EXPECT_LE(cost(v.row_order[o]), previous);
      previous = cost(v.row_order[o]);
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), matrices * v.row_tiles);
    EXPECT_EQ(*seen.rbegin(), matrices * v.row_tiles - 1);
    EXPECT_EQ(map.counts().row_blocks_visited, map.counts().column_blocks_visited);
  }
}

TEST(HostTileMap, a_causal_mask_costs_one_run_of_unmasked_blocks_and_its_diagonal) {
  RawMask mask({1, 1, 960, 960});
  for (std::int32_t j = 0; j < 960; ++j) mask.set(j, {960, 0, 0, j});
  const HostTileMap map = HostTileMap::build(mask.view(), {192, 80}, {100, 100, 100});
  const TileMapView v = map.view();
  // Row tile 1 holds rows 192..383: columns 0..159 are unmasked, 160..383 touch the diagonal subtile by subtile.
  ASSERT_GE(v.row_run_count[1], 2);
  const sm90::Run& head = v.row_runs[v.row_run_begin[1]];
  EXPECT_EQ(head, (sm90::Run{0, 2, 0b101010, -1}));
  EXPECT_EQ(v.row_runs[v.row_run_begin[1] + 1].first, 2);
  EXPECT_EQ(subtile_class(v.row_runs[v.row_run_begin[1] + 1].classes, 0), TileClass::partial);
  EXPECT_EQ(v.row_order[0], 4);  // the last row tile is the heaviest
}

TEST(HostTileMap, a_ragged_last_column_block_is_cut_even_without_a_mask) {
  RawMask mask({1, 1, 128, 100});
  for (std::int32_t j = 0; j < 100; ++j) mask.set(j, {128, 0, 128, 0});
  const HostTileMap map = HostTileMap::build(mask.view(), {128, 64}, {8, 8, 8});
  const TileMapView v = map.view();
  ASSERT_EQ(v.row_run_count[0], 2);
  EXPECT_EQ(v.row_runs[0], (sm90::Run{0, 1, 0b1010, -1}));
  EXPECT_EQ(v.row_runs[1], (sm90::Run{1, 1, 0b0101, 0}));
  EXPECT_EQ(v.padded_columns, 128);
}

TEST(HostTileMap, a_mask_without_rows_or_columns_has_empty_lists) {
  for (const MaskShape shape : {MaskShape{1, 1, 0, 64}, MaskShape{1, 1, 64, 0}, MaskShape{0, 1, 64, 64}}) {
    RawMask mask(shape);
    const HostTileMap map = HostTileMap::build(mask.view(), {64, 64}, {4, 4, 4});
    EXPECT_EQ(map.counts(), MapCounts{});
    const TileMapView v = map.view();
    for (std::int64_t l = 0; l < shape.batch * shape.heads * v.row_tiles; ++l) EXPECT_EQ(v.row_run_count[l], 0);
  }
}

TEST(HostTileMap, refuses_tile_shapes_no_kernel_has) {
  const MaskShape mask{1, 1, 64, 64};
  EXPECT_THROW(check_map_shape(mask, {96, 64}), Error);
  EXPECT_THROW(check_map_shape(mask, {64, 100}), Error);
  EXPECT_THROW(check_map_shape(mask, {64, 136}), Error);
  EXPECT_THROW(check_map_shape({1, 1, 2147483647, 64}, {64, 64}), Error);
  EXPECT_THROW(check_map_shape({1 << 20, 1 << 10, 1024, 64}, {64, 64}), Error);
  EXPECT_NO_THROW(check_map_shape(mask, {192, 80}));
}

}  // namespace
}  // namespace flashmask::sm90
