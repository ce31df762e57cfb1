#include "flashmask/tile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "flashmask/error.hpp"
#include "flashmask/needs.hpp"

namespace flashmask {
namespace {

using std::int32_t;
using std::int64_t;

ColumnMask causal(int64_t rows, int64_t columns) {
  ColumnMask mask({1, 1, rows, columns});
  for (int64_t j = 0; j < columns; ++j) {
    const auto diagonal = static_cast<int32_t>(std::clamp<int64_t>(j - (columns - rows), 0, rows));
    mask.set(0, 0, j, {static_cast<int32_t>(rows), 0, 0, diagonal});
  }
  return mask;
}

ColumnMask documents(const std::vector<int32_t>& lengths, bool is_causal) {
  const int32_t n = std::accumulate(lengths.begin(), lengths.end(), 0);
  ColumnMask mask({1, 1, n, n});
  int32_t begin = 0;
  for (const int32_t length : lengths) {
    for (int32_t j = begin; j < begin + length; ++j) mask.set(0, 0, j, {begin + length, n, 0, is_causal ? j : begin});
    begin += length;
  }
  return mask;
}

TEST(Cases, A23_tail_row_block_is_clamped) {
  const TileMap map = TileMap::build(documents({64, 36}, false), {64, 64});
  EXPECT_EQ(map.at(0, 0, 0, 0), TileClass::unmasked);
  EXPECT_EQ(map.at(0, 0, 0, 1), TileClass::masked);
  EXPECT_EQ(map.at(0, 0, 1, 0), TileClass::masked);
  EXPECT_EQ(map.at(0, 0, 1, 1), TileClass::unmasked);
}

TEST(TileMap, causal_square_has_a_partial_diagonal) {
  const TileMap map = TileMap::build(causal(512, 512), {128, 128});
  EXPECT_EQ(map.counts(), (TileCounts{6, 4, 6}));
  ASSERT_EQ(map.row(0, 0, 2).size(), 2U);
  EXPECT_EQ(map.row(0, 0, 2)[0], (TileRun{0, 2, TileClass::unmasked}));
  EXPECT_EQ(map.row(0, 0, 2)[1], (TileRun{2, 1, TileClass::partial}));
  ASSERT_EQ(map.column(0, 0, 1).size(), 2U);
  EXPECT_EQ(map.column(0, 0, 1)[0], (TileRun{1, 1, TileClass::partial}));
  EXPECT_EQ(map.column(0, 0, 1)[1], (TileRun{2, 2, TileClass::unmasked}));
  EXPECT_EQ(map.row_cost(0, 0, 3), 3 * 1000 + 1080);
  EXPECT_EQ(map.heaviest_first().front(), (RowBlock{0, 0, 3}));
  EXPECT_EQ(map.heaviest_first().back(), (RowBlock{0, 0, 0}));
}

TEST(TileMap, a_run_below_the_diagonal_is_not_taken_for_the_end) {
  // Nq = 4, one column that hides row 1 alone: rows 2 and 3 stay visible (MASKS.md section 2).
  ColumnMask mask({1, 1, 4, 1});
  mask.set(0, 0, 0, {1, 2, 0, 0});
  const TileMap map = TileMap::build(mask, {1, 1});
  EXPECT_EQ(map.at(0, 0, 0, 0), TileClass::unmasked);
  EXPECT_EQ(map.at(0, 0, 1, 0), TileClass::masked);
  EXPECT_EQ(map.at(0, 0, 2, 0), TileClass::unmasked);
  EXPECT_EQ(map.at(0, 0, 3, 0), TileClass::unmasked);
}

TEST(TileMap, exact_rule_sees_what_extrema_blur) {
  // CASES C10: rows 4..7 of the first four columns are hidden, by the lower pair of some and the upper pair of others.
  ColumnMask mask({1, 1, 8, 8});
  for (int32_t j = 0; j < 8; ++j) mask.set(0, 0, j, {j < 2 ? 4 : 8, 8, 0, j == 2 || j == 3 ? 8 : 0});
  EXPECT_EQ(TileMap::build(mask, {4, 4}, TileRule::minmax).at(0, 0, 1, 0), TileClass::partial);
  EXPECT_EQ(TileMap::build(mask, {4, 4}, TileRule::exact).at(0, 0, 1, 0), TileClass::masked);
  EXPECT_EQ(TileMap::build(mask, {4, 4}, TileRule::exact).rule(), TileRule::exact);
  const NeedRuns needs = NeedRuns::build(mask, 4);
  EXPECT_TRUE(needs.needs(0, 0, 0));
  EXPECT_FALSE(needs.needs(0, 1, 0));
  EXPECT_TRUE(needs.needs(0, 1, 1));
}

TEST(TileMap, empty_extents_have_no_tiles) {
  const TileMap no_rows = TileMap::build(ColumnMask({2, 1, 0, 300}), {128, 128});
  EXPECT_EQ(no_rows.row_blocks(), 0);
  EXPECT_EQ(no_rows.column_blocks(), 3);
  EXPECT_TRUE(no_rows.column(1, 0, 2).empty());
  EXPECT_EQ(no_rows.counts().total(), 0);
  const TileMap no_columns = TileMap::build(ColumnMask({2, 1, 300, 0}), {128, 128});
  EXPECT_EQ(no_columns.row_blocks(), 3);
  EXPECT_TRUE(no_columns.row(1, 0, 2).empty());
  EXPECT_EQ(no_columns.heaviest_first().size(), 6U);
  EXPECT_EQ(element_density(ColumnMask({1, 1, 0, 5})), 1.0);
  EXPECT_EQ(tile_density(ColumnMask({1, 1, 0, 5})), 1.0);
}

TEST(TileMap, a_tile_shape_that_is_not_positive_is_refused) {
  EXPECT_THROW(TileMap::build(ColumnMask({1, 1, 4, 4}), {0, 128}), Error);
  EXPECT_THROW(TileMap::build(ColumnMask({1, 1, 4, 4}), {128, -1}), Error);
  EXPECT_THROW(tile_counts(ColumnMask({1, 1, 4, 4}), {0, 1}), Error);
}

TEST(Density, of_a_causal_mask) {
  EXPECT_DOUBLE_EQ(element_density(causal(512, 512)), (512.0 * 513 / 2) / (512.0 * 512));
  EXPECT_DOUBLE_EQ(tile_density(causal(512, 512)), 10.0 / 16.0);
}

TEST(ChunkLoads, B9_cells_of_causal_documents) {
  const ColumnMask mask = documents({3, 5, 2, 4, 2}, true);
  EXPECT_EQ(chunk_loads(mask, 2, {.unit = LoadUnit::cells}), (std::vector<int64_t>{3, 4, 5, 9, 3, 3, 7, 3}));
}

TEST(ChunkLoads, tiles_start_at_each_chunks_first_row_and_are_clipped_to_it) {
  // Full attention, 100 rows, chunks of 40 rows, tiles of 32: chunks hold 2, 2 and 1 row tiles; 4 column blocks.
  const ColumnMask mask({1, 1, 100, 100});
  const LoadOptions options{.tile_shape = {32, 32}, .costs = {.partial = 7, .unmasked = 5}};
  EXPECT_EQ(chunk_loads(mask, 40, options), (std::vector<int64_t>{40, 40, 20}));
}

TEST(ChunkLoads, B7_counts_beyond_32_bits) {
  // Full mask, 4,194,304 columns: 32768^2 tiles of 128 x 128 per head; 64 heads = 6.87e10 tiles.
  const ColumnMask mask({1, 1, 4'194'304, 4'194'304});
  EXPECT_EQ(tile_counts(mask).unmasked, int64_t{32768} * 32768);
  const auto loads = chunk_loads(mask, 4'194'304 / 64, {.costs = {.partial = 64, .unmasked = 64}});
  EXPECT_EQ(std::accumulate(loads.begin(), loads.end(), int64_t{0}), int64_t{64} * 32768 * 32768);
}

TEST(ChunkLoads, overflow_and_bad_arguments_are_refused) {
  const ColumnMask mask({1, 1, 1024, 1024});
  EXPECT_THROW(chunk_loads(mask, 0), Error);
  EXPECT_THROW(chunk_loads(mask, 64, {.tile_shape = {0, 1}}), Error);
  EXPECT_THROW(chunk_loads(mask, 64, {.costs = {.partial = -1, .unmasked = 1}}), Error);
  EXPECT_THROW(chunk_loads(mask, 64, {.costs = {.partial = 1, .unmasked = int64_t{1} << 62}}), Error);
  EXPECT_TRUE(chunk_loads(ColumnMask({1, 1, 0, 8}), 4).empty());
}

TEST(NeedRuns, causal_needs_the_lower_triangle_and_ragged_tails_count) {
  const NeedRuns needs = NeedRuns::build(causal(91, 91), 10);
  ASSERT_EQ(needs.row_chunks(), 10);
  ASSERT_EQ(needs.column_chunks(), 10);
  for (int64_t i = 0; i < 10; ++i) {
    for (int64_t j = 0; j < 10; ++j) EXPECT_EQ(needs.needs(0, i, j), j <= i) << i << ',' << j;
    ASSERT_EQ(needs.row(0, i).size(), 1U);
    EXPECT_EQ(needs.row(0, i)[0], (ChunkRun{0, static_cast<int32_t>(i) + 1}));
  }
  EXPECT_THROW(NeedRuns::build(causal(8, 8), 0), Error);
}

TEST(NeedRuns, a_chunk_of_any_length_beyond_the_rows_is_the_only_one) {
  for (const int64_t chunk : {int64_t{91}, int64_t{1} << 62, std::numeric_limits<int64_t>::max()}) {
    const NeedRuns needs = NeedRuns::build(causal(91, 91), chunk);
    ASSERT_EQ(needs.row_chunks(), 1) << chunk;
    EXPECT_TRUE(needs.needs(0, 0, 0)) << chunk;
    EXPECT_EQ(chunk_loads(causal(91, 91), chunk, {.unit = LoadUnit::cells}), std::vector<int64_t>{91 * 46}) << chunk;
  }
}

TEST(NeedRuns, a_chunk_is_needed_if_any_mask_head_sees_it) {
  ColumnMask mask({1, 2, 8, 8});
  for (int64_t j = 0; j < 8; ++j) {
    mask.set(0, 0, j, {0, 8, 0, 0});
    mask.set(0, 1, j, j < 4 ? HiddenRows{0, 8, 0, 0} : HiddenRows{4, 8, 0, 0});
  }
  const NeedRuns needs = NeedRuns::build(mask, 4);
  EXPECT_FALSE(needs.needs(0, 0, 0));
  EXPECT_TRUE(needs.needs(0, 0, 1));
  EXPECT_FALSE(needs.needs(0, 1, 0));
  EXPECT_FALSE(needs.needs(0, 1, 1));
}

// As many chunks as a bit a pair would take 512 MB for, one batch row beside another.
TEST(NeedRuns, documents_need_one_run_a_row_however_many_chunks_there_are) {
  const std::vector<int32_t> lengths{700'000, 5, 123'456, 64, 200'000, 25'051};
  const NeedRuns needs = NeedRuns::build(documents(lengths, true), 16);
  ASSERT_EQ(needs.row_chunks(), 65'536);
  std::size_t document = 0;
  int64_t begin = 0;
  for (int64_t i = 0; i < needs.row_chunks(); ++i) {
    while (begin + lengths[document] <= 16 * i) begin += lengths[document++];
    ASSERT_EQ(needs.row(0, i).size(), 1U) << i;
    ASSERT_EQ(needs.row(0, i)[0], (ChunkRun{static_cast<int32_t>(begin / 16), static_cast<int32_t>(i) + 1})) << i;
  }
}

TEST(NeedRuns, rows_and_runs_are_added_in_ascending_order) {
  NeedRuns needs(2, 3, 9);
  needs.add(0, 1, {2, 4});
  needs.add(0, 1, {3, 4});
  needs.add(0, 1, {4, 5});  // touches what is there
  needs.add(0, 1, {7, 9});
  needs.add(1, 0, {0, 9});
  ASSERT_EQ(needs.row(0, 1).size(), 2U);
  EXPECT_EQ(needs.row(0, 1)[0], (ChunkRun{2, 5}));
  EXPECT_EQ(needs.row(0, 1)[1], (ChunkRun{7, 9}));
  EXPECT_TRUE(needs.row(0, 0).empty());
  EXPECT_TRUE(needs.row(0, 2).empty());
  EXPECT_EQ(needs.row(1, 0).size(), 1U);
  EXPECT_TRUE(needs.row(1, 2).empty());
  std::string set;
  for (int64_t j = 0; j < 9; ++j) set += needs.needs(0, 1, j) ? 'x' : '.';
  EXPECT_EQ(set, "..xxx..xx");
  const NeedRuns before = needs;
  EXPECT_THROW(needs.add(0, 2, {0, 1}), Error);
  EXPECT_THROW(needs.add(1, 3, {0, 1}), Error);
  EXPECT_THROW(needs.add(2, 0, {0, 1}), Error);
  EXPECT_THROW(needs.add(1, 1, {4, 4}), Error);
  EXPECT_THROW(needs.add(1, 1, {-1, 4}), Error);
  EXPECT_THROW(needs.add(1, 1, {4, 10}), Error);
  EXPECT_EQ(needs, before);
  needs.add(1, 1, {4, 5});
  EXPECT_THROW(needs.add(1, 1, {2, 6}), Error);
  EXPECT_THROW(needs.add(1, 1, {1, 2}), Error);
  EXPECT_THROW(NeedRuns(-1, 1, 1), Error);
  EXPECT_THROW(NeedRuns(1, 1, int64_t{1} << 31), Error);
}

}  // namespace
}  // namespace flashmask
