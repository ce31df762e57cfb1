// The tile map that the kernels read, built on the host: against the dense mask, cell by cell.
#include "sm90/tile_map/host_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "flashmask/error.hpp"
#include "sm90/tile_map/count_blocks.hpp"
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
  return {flashmask::testing::pick(random, {64, 128, 192, 256}),
          flashmask::testing::pick(random, {64, 80, 96, 128, 256})};
}

RawMask draw_mask(Random& random) {
  const MaskShape shape{random.integer(1, 2), random.integer(1, 2), random_length(random, 500),
                        random_length(random, 500)};
  return random_family_mask(random, shape);
}

MapForm draw_form(Random& random) {
  return {flashmask::testing::pick(random, {1, 8, 8, 2, 16}),
          flashmask::testing::pick(random, {TileRule::minmax, TileRule::exact})};
}

/// Mask rows x columns of a tile of that many accumulator rows.
TileShape packed(TileShape tile, const MapForm& form) {
  return {tile.block_m / form.packed_heads, tile.block_n};
}

/// Columns between the places where a block of a row list may start.
std::int32_t unit_of(const TileMapView& v) {
  return v.packed_heads > 1 ? 16 : v.block_n;
}

/// Class word of one (list, row tile) as the column lists tell it; 0 where no run covers it.
std::uint32_t word_in(const Run* runs, std::int32_t begin, std::int32_t count, std::int32_t tile) {
  for (std::int32_t r = begin; r < begin + count; ++r) {
    if (tile >= runs[r].first && tile < runs[r].first + runs[r].count) return runs[r].classes;
  }
  return 0;
}

/// The block of a row list that holds a column: its class word (0: none), bitmap and first column.
struct BlockOfColumn {
  std::uint32_t word = 0;
  std::int32_t bitmap = -1, first_column = 0;
};

BlockOfColumn block_of(const TileMapView& v, std::int64_t list, std::int32_t column) {
  const std::int32_t unit = unit_of(v);
  BlockOfColumn found;
  for (std::int32_t r = v.row_run_begin[list]; r < v.row_run_begin[list] + v.row_run_count[list]; ++r) {
    const Run& run = v.row_runs[r];
    const std::int32_t i = column < run.first * unit ? -1 : (column - run.first * unit) / v.block_n;
    if (i < 0 || i >= run.count) continue;
    EXPECT_EQ(found.word, 0U) << "column " << column << " stands in two blocks of list " << list;
    found = {run.classes & ~shared_bitmap_bit, run_bitmap(run, i), run.first * unit + i * v.block_n};
  }
  return found;
}

/// What a kernel that trusts the map would let row i of packed head `head` see of column j.
bool seen_through(const TileMapView& v, std::int64_t matrix, std::int32_t i, std::int32_t head, std::int32_t j,
                  bool by_rows) {
  const std::int32_t tile = i / v.block_m, row = i % v.block_m * v.packed_heads + head;
  BlockOfColumn block;
  if (by_rows) {
    block = block_of(v, matrix * v.row_tiles + tile, j);
  } else {
    const std::int64_t l = matrix * v.column_blocks + j / v.block_n;
    block.word = word_in(v.column_runs, v.column_run_begin[l], v.column_run_count[l], tile);
  }
  switch (subtile_class(block.word, row / 64)) {
    case TileClass::masked:
      return false;
    case TileClass::unmasked:
      return j < v.columns;
    case TileClass::partial:
      break;
  }
  if (block.bitmap < 0) {
    const std::int64_t c = matrix * v.padded_columns + j;
    return !HiddenRows{v.lts[c], v.lte[c], v.uts[c], v.ute[c]}.hides(i);
  }
  // The thread and element that own (row, column), the inverse of accumulator_row and accumulator_column.
  const std::int32_t column = j - block.first_column;
  const std::int32_t t = row / 64 * 128 + row % 64 / 16 * 32 + row % 8 * 4 + column % 8 / 2;
  const std::int32_t e = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
  EXPECT_EQ(accumulator_row(t, e), row);
  EXPECT_EQ(accumulator_column(t, e), column);
  const std::int64_t words = std::int64_t{2} * v.block_m * v.packed_heads;
  return (v.bitmaps[block.bitmap * words + t] >> bitmap_bit(e) & 1U) != 0;
}

void expect_equals_dense(const RawMask& mask, const HostTileMap& map, const std::string& name) {
  const TileMapView v = map.view();
  for (std::int64_t m = 0; m < mask.shape.batch * mask.shape.heads; ++m) {
    for (std::int32_t i = 0; i < v.row_tiles * v.block_m; ++i) {
      const std::int32_t head = i % v.packed_heads;
      for (std::int32_t j = 0; j < v.padded_columns; ++j) {
        const bool inside = i < v.rows && j < v.columns;
        const bool want = inside && mask.visible(m / mask.shape.heads, m % mask.shape.heads, i, j);
        if (i >= v.rows) {
          const std::uint32_t word = block_of(v, m * v.row_tiles + i / v.block_m, j).word;
          // A row beyond the end inside a subtile that has rows: never written, so free to compute.
          if (subtile_class(word, i % v.block_m * v.packed_heads / 64) != TileClass::masked) continue;
        }
        ASSERT_EQ(seen_through(v, m, i, head, j, true), want)
            << name << " rows: matrix " << m << " row " << i << " column " << j;
        if (i < v.rows && j < v.column_blocks * v.block_n) {
          ASSERT_EQ(seen_through(v, m, i, head, j, false), want)
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
    EXPECT_EQ(map.counts().bitmap_blocks, tile.block_n > max_bitmap_columns ? 0 : map.counts().partial_blocks);
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

TEST(HostTileMap, every_form_says_of_every_cell_what_the_dense_mask_says) {
  for (int n = 0; n < draws / 2; ++n) {
    Random random(300000 + n);
    const RawMask mask = draw_mask(random);
    const MapForm form = draw_form(random);
    const TileShape tile = packed(draw_tile(random), form);
    MapCapacity capacity = default_capacity(mask.shape, tile, default_bitmap_bytes, form);
    if (n % 4 == 0) capacity.bitmaps = static_cast<std::int32_t>(random.integer(0, 6));
    if (n % 8 == 0) capacity.row_runs = static_cast<std::int32_t>(random.integer(0, 6));
    const HostTileMap map = HostTileMap::build(mask.view(), tile, capacity, {}, form);
    const TileMapView v = map.view();
    EXPECT_EQ(v.packed_heads, form.packed_heads);
    ASSERT_NO_FATAL_FAILURE(expect_equals_dense(mask, map,
                                                "draw " + std::to_string(n) + " packed " +
                                                    std::to_string(form.packed_heads) +
                                                    (form.rule == TileRule::exact ? " exact" : "")));
  }
}

/// First columns of the blocks of a row list.
std::vector<std::int32_t> starts_of(const TileMapView& v, std::int64_t list) {
  std::vector<std::int32_t> starts;
  for (std::int32_t r = v.row_run_begin[list]; r < v.row_run_begin[list] + v.row_run_count[list]; ++r) {
    for (std::int32_t i = 0; i < v.row_runs[r].count; ++i) {
      starts.push_back(v.row_runs[r].first * unit_of(v) + i * v.block_n);
    }
  }
  return starts;
}

TEST(HostTileMap, blocks_of_a_packed_map_are_the_fewest_that_cover_what_a_row_tile_sees) {
  for (int n = 0; n < draws / 4; ++n) {
    Random random(400000 + n);
    const RawMask mask = draw_mask(random);
    const MapForm form{.packed_heads = flashmask::testing::pick(random, {2, 8, 16}), .rule = TileRule::exact};
    const TileShape tile = packed(draw_tile(random), form);
    const HostTileMap map =
        HostTileMap::build(mask.view(), tile, default_capacity(mask.shape, tile, default_bitmap_bytes, form), {}, form);
    const TileMapView v = map.view();
    for (std::int64_t l = 0; l < mask.shape.batch * mask.shape.heads * v.row_tiles; ++l) {
      const std::int64_t m = l / v.row_tiles;
      const auto sees = [&](std::int32_t j) {
        const auto first = static_cast<std::int32_t>(l % v.row_tiles) * v.block_m;
        for (std::int32_t i = first; i < std::min(first + v.block_m, v.rows); ++i) {
          if (mask.visible(m / mask.shape.heads, m % mask.shape.heads, i, j)) return true;
        }
        return false;
      };
      std::vector<std::int32_t> want;
      for (std::int32_t j = 0; j < v.columns;) {
        if (sees(j)) {
          want.push_back(j / 16 * 16);
          j = want.back() + v.block_n;
        } else {
          ++j;
        }
      }
      ASSERT_EQ(starts_of(v, l), want) << "draw " << n << " list " << l;
    }
  }
}

TEST(CountRowBlocks, counts_what_the_row_lists_of_a_map_hold) {
  for (int n = 0; n < draws; ++n) {
    Random random(800000 + n);
    // Now and then long enough for whole groups of columns, of which a row tile sees all or nothing.
    const std::int64_t columns = n % 5 == 0 ? random.integer(2000, 40000) : random_length(random, 500);
    const RawMask mask = random_family_mask(
        random, {random.integer(1, 2), random.integer(1, 2), random_length(random, n % 5 == 0 ? 100 : 500), columns});
    const MapForm form{.packed_heads = flashmask::testing::pick(random, {1, 8})};
    const TileShape tile = packed(draw_tile(random), form);
    const HostTileMap map = HostTileMap::build(mask.view(), tile, {0, 0, 0}, {}, form);
    const RowBlocks blocks = count_row_blocks(mask.view(), tile, form);
    ASSERT_EQ(blocks.visited, static_cast<std::int64_t>(map.counts().row_blocks_visited)) << "draw " << n;
    ASSERT_EQ(blocks.partial, static_cast<std::int64_t>(map.counts().partial_blocks)) << "draw " << n;
  }
  EXPECT_EQ(count_row_blocks(RawMask({1, 1, 0, 64}).view(), {64, 64}).visited, 0);
  EXPECT_EQ(count_row_blocks(RawMask({1, 1, 64, 0}).view(), {64, 64}).visited, 0);
  EXPECT_THROW(count_row_blocks(RawMask({1, 1, 64, 64}).view(), {64, 64}, {.rule = TileRule::exact}), Error);
}

TEST(HostTileMap, the_exact_form_counts_what_the_exact_rule_of_the_tile_room_counts) {
  for (int n = 0; n < draws; ++n) {
    Random random(500000 + n);
    const TileShape tile = draw_tile(random);
    const MaskShape shape{1, 2, random_length(random, 500), random.integer(1, 6) * tile.block_n};
    const RawMask mask = random_family_mask(random, shape);
    const MapForm form{.rule = TileRule::exact};
    const HostTileMap map = HostTileMap::build(mask.view(), tile, default_capacity(shape, tile), {}, form);
    const TileCounts want = tile_counts(ColumnMask(mask.shape, mask.lts, mask.lte, mask.uts, mask.ute),
                                        {64, tile.block_n}, TileRule::exact);
    EXPECT_EQ(map.counts().partial_subtiles, static_cast<std::uint64_t>(want.partial)) << n;
    EXPECT_EQ(map.counts().unmasked_subtiles, static_cast<std::uint64_t>(want.unmasked)) << n;
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

TEST(HostTileMap, sections_of_matrices_follow_one_another_and_each_has_its_heaviest_first) {
  for (int n = 0; n < draws / 4; ++n) {
    Random random(600000 + n);
    const RawMask mask =
        random_family_mask(random, {random.integer(1, 3), random.integer(1, 4), random_length(random, 900), 200});
    const auto matrices = static_cast<std::int32_t>(mask.shape.batch * mask.shape.heads);
    const auto section = static_cast<std::int32_t>(random.integer(1, matrices));
    const TileShape tile = draw_tile(random);
    const HostTileMap map = HostTileMap::build(mask.view(), tile, default_capacity(mask.shape, tile), {}, {}, section);
    const TileMapView v = map.view();
    std::set<std::int32_t> seen;
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (std::int32_t o = 0; o < matrices * v.row_tiles; ++o) {
      const std::int32_t l = v.row_order[o];
      const std::int32_t of = l / v.row_tiles / section;
      ASSERT_EQ(of, o / (section * v.row_tiles)) << "draw " << n << " place " << o;
      std::int64_t cost = 0;
      for (std::int32_t r = v.row_run_begin[l]; r < v.row_run_begin[l] + v.row_run_count[l]; ++r) {
        cost += v.row_runs[r].count * block_cost(v.row_runs[r].classes, TileCosts{});
      }
      if (o % (section * v.row_tiles) == 0) before = std::numeric_limits<std::int64_t>::max();
      ASSERT_LE(cost, before) << "draw " << n << " place " << o;
      before = cost;
      seen.insert(l);
    }
    EXPECT_EQ(static_cast<std::int32_t>(seen.size()), matrices * v.row_tiles);
  }
}

TEST(OrderRule, keys_keep_rows_sections_and_costs_apart_whatever_their_number) {
  for (const std::int32_t matrices : {1, 2, 3, 64, 1000, 1 << 20})
    for (const std::int32_t section : {0, 1, 3, 16}) {
      const TileGrid grid = tile_grid(1 << 20, 1 << 20, {192, 80});
      const OrderRule rule = order_rule(grid, TileCosts{}, matrices, section);
      const std::int64_t most = std::int64_t{grid.column_blocks} * TileCosts{}.partial;
      EXPECT_LT(rule.column_key(most), 1U << 31);
      EXPECT_GE(rule.row_key(0, matrices - 1), 1U << 31);
      if (section == 0 || matrices <= section) {
        EXPECT_EQ(rule.sections, 1);
      } else {
        EXPECT_GT(rule.row_key(0, 0), rule.row_key(most, section)) << matrices << ' ' << section;
      }
      EXPECT_GT(rule.row_key(most, 0), rule.row_key(most / 2, 0)) << matrices << ' ' << section;
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
  EXPECT_THROW(check_map_shape(mask, {64, 264}), Error);
  EXPECT_THROW(check_map_shape({1, 1, 2147483647, 64}, {64, 64}), Error);
  EXPECT_THROW(check_map_shape({1 << 20, 1 << 10, 1024, 64}, {64, 64}), Error);
  EXPECT_NO_THROW(check_map_shape(mask, {192, 80}));
  EXPECT_THROW(check_map_shape(mask, {192, 80}, {.packed_heads = 3}), Error);
  EXPECT_THROW(check_map_shape(mask, {192, 80}, {.packed_heads = 32}), Error);
  EXPECT_THROW(check_map_shape(mask, {192, 80}, {.packed_heads = 8}), Error);  // 1536 accumulator rows
  EXPECT_THROW(check_map_shape(mask, {20, 80}, {.packed_heads = 8}), Error);
  EXPECT_THROW(check_map_shape(mask, {24, 72}, {.packed_heads = 8}), Error);
  EXPECT_THROW(check_map_shape(mask, {24, 80}), Error);
  EXPECT_NO_THROW(check_map_shape(mask, {24, 80}, {.packed_heads = 8}));
}

}  // namespace
}  // namespace flashmask::sm90
