// Random four-vector masks against their dense expansion: classification, map, loads and needs.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "flashmask/needs.hpp"
#include "flashmask/tile.hpp"
#include "support/random_mask.hpp"

namespace flashmask {
namespace {

using std::int64_t;
using testing::describe;
using testing::Random;
using testing::random_mask;
using testing::random_shape;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kMasks = 1500;
#else
constexpr int64_t kMasks = 20000;
#endif

/// What the dense mask says about a rectangle of cells.
TileClass dense_class(const std::vector<std::uint8_t>& dense, int64_t columns, int64_t r0, int64_t r1, int64_t k0,
                      int64_t k1) {
  int64_t visible = 0;
  for (int64_t i = r0; i < r1; ++i) {
    for (int64_t j = k0; j < k1; ++j) visible += dense[static_cast<std::size_t>(i * columns + j)];
  }
  if (visible == 0) return TileClass::masked;
  return visible == (r1 - r0) * (k1 - k0) ? TileClass::unmasked : TileClass::partial;
}

void check_head(const ColumnMask& mask, int64_t b, int64_t h, const TileMap& minmax, const TileMap& exact) {
  const auto [block_m, block_n] = minmax.tile_shape();
  const int64_t rows = mask.shape().rows;
  const int64_t columns = mask.shape().columns;
  const auto dense = mask.dense(b, h);
  TileCounts counts;
  for (int64_t i = 0; i < minmax.row_blocks(); ++i) {
    for (int64_t j = 0; j < minmax.column_blocks(); ++j) {
      const TileClass truth = dense_class(dense, columns, i * block_m, std::min<int64_t>((i + 1) * block_m, rows),
                                          j * block_n, std::min<int64_t>((j + 1) * block_n, columns));
      ASSERT_EQ(exact.at(b, h, i, j), truth) << "exact rule, tile " << i << ',' << j;
      const TileClass found = minmax.at(b, h, i, j);
      ASSERT_TRUE(found == truth || found == TileClass::partial) << "minmax rule, tile " << i << ',' << j;
      counts.masked += found == TileClass::masked;
      counts.partial += found == TileClass::partial;
      counts.unmasked += found == TileClass::unmasked;
    }
  }
  ASSERT_EQ(minmax.counts(b, h), counts);
}

/// Rows and transpose hold the same tiles, as maximal ascending runs.
void check_runs(const TileMap& map, int64_t b, int64_t h) {
  const auto check = [&](std::span<const TileRun> runs, auto at) {
    for (std::size_t k = 0; k < runs.size(); ++k) {
      ASSERT_GT(runs[k].count, 0);
      ASSERT_NE(runs[k].tile_class, TileClass::masked);
      if (k > 0) {
        const auto& before = runs[k - 1];
        ASSERT_LE(before.first + before.count, runs[k].first);
        ASSERT_FALSE(before.first + before.count == runs[k].first && before.tile_class == runs[k].tile_class);
      }
      for (int64_t t = runs[k].first; t < runs[k].first + runs[k].count; ++t) ASSERT_EQ(at(t), runs[k].tile_class);
    }
  };
  int64_t by_row = 0;
  int64_t by_column = 0;
  for (int64_t i = 0; i < map.row_blocks(); ++i) {
    for (const TileRun& run : map.row(b, h, i)) by_row += run.count;
  }
  for (int64_t j = 0; j < map.column_blocks(); ++j) {
    check(map.column(b, h, j), [&](int64_t i) { return map.at(b, h, i, j); });
    for (const TileRun& run : map.column(b, h, j)) by_column += run.count;
  }
  for (int64_t i = 0; i < map.row_blocks(); ++i) {
    check(map.row(b, h, i), [&](int64_t j) { return map.at(b, h, i, j); });
  }
  ASSERT_EQ(by_row, by_column);
}

void check_order(const TileMap& map) {
  ASSERT_EQ(static_cast<int64_t>(map.heaviest_first().size()),
            map.row_blocks() * map.mask_shape().batch * map.mask_shape().heads);
  int64_t before = std::numeric_limits<int64_t>::max();
  for (const RowBlock& block : map.heaviest_first()) {
    const int64_t cost = map.row_cost(block.batch, block.head, block.block);
    ASSERT_LE(cost, before);
    before = cost;
  }
}

TEST(Property, classification_is_sound_and_the_exact_rule_has_no_false_partial) {
  for (int64_t step = 0; step < kMasks; ++step) {
    Random random(static_cast<std::uint64_t>(step));
    const MaskShape shape = random_shape(random, 3 + step * 37 / kMasks);
    const ColumnMask mask = random_mask(shape, random);
    const TileShape tile{static_cast<std::int32_t>(random.integer(1, 12)),
                         static_cast<std::int32_t>(random.integer(1, 12))};
    SCOPED_TRACE(::testing::Message() << "seed " << step << " tile " << tile.block_m << 'x' << tile.block_n);
    const TileMap minmax = TileMap::build(mask, tile, TileRule::minmax);
    const TileMap exact = TileMap::build(mask, tile, TileRule::exact);
    for (int64_t b = 0; b < shape.batch; ++b) {
      for (int64_t h = 0; h < shape.heads; ++h) {
        check_head(mask, b, h, minmax, exact);
        check_runs(minmax, b, h);
        check_runs(exact, b, h);
      }
    }
    check_order(minmax);
    EXPECT_EQ(minmax.counts(), tile_counts(mask, tile, TileRule::minmax));
    EXPECT_EQ(exact.counts(), tile_counts(mask, tile, TileRule::exact));
    if (::testing::Test::HasFailure()) FAIL() << describe(mask);
  }
}

/// Load of one chunk from the dense mask, tile by tile.
int64_t dense_load(const ColumnMask& mask, int64_t begin, int64_t end, const LoadOptions& options) {
  const MaskShape& s = mask.shape();
  const auto [block_m, block_n] = options.tile_shape;
  int64_t load = 0;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const auto dense = mask.dense(b, h);
      if (options.unit == LoadUnit::cells) {
        for (int64_t i = begin * s.columns; i < end * s.columns; ++i) load += dense[static_cast<std::size_t>(i)];
        continue;
      }
      for (int64_t r = begin; r < end; r += block_m) {
        for (int64_t k = 0; k < s.columns; k += block_n) {
          const TileClass c = dense_class(dense, s.columns, r, std::min<int64_t>(r + block_m, end), k,
                                          std::min<int64_t>(k + block_n, s.columns));
          load += c == TileClass::masked ? 0 : c == TileClass::partial ? options.costs.partial : options.costs.unmasked;
        }
      }
    }
  }
  return load;
}

TEST(Property, chunk_loads_and_need_sets_equal_the_dense_mask) {
  for (int64_t step = 0; step < kMasks / 4; ++step) {
    Random random(static_cast<std::uint64_t>(1'000'000 + step));
    const MaskShape shape = random_shape(random, 3 + step * 160 / kMasks);
    const ColumnMask mask = random_mask(shape, random);
    const int64_t chunk = random.integer(1, 14);
    LoadOptions options{.unit = random.one_in(3) ? LoadUnit::cells : LoadUnit::tiles, .rule = TileRule::exact};
    options.tile_shape = {static_cast<std::int32_t>(random.integer(1, 9)),
                          static_cast<std::int32_t>(random.integer(1, 9))};
    options.costs = {.partial = random.integer(0, 20), .unmasked = random.integer(0, 20)};
    SCOPED_TRACE(::testing::Message() << "seed " << step << " chunk " << chunk);
    const auto loads = chunk_loads(mask, chunk, options);
    const NeedRuns needs = NeedRuns::build(mask, chunk);
    ASSERT_EQ(static_cast<int64_t>(loads.size()), (shape.rows + chunk - 1) / chunk);
    for (int64_t i = 0; i < static_cast<int64_t>(loads.size()); ++i) {
      const int64_t r0 = i * chunk;
      const int64_t r1 = std::min(r0 + chunk, shape.rows);
      EXPECT_EQ(loads[static_cast<std::size_t>(i)], dense_load(mask, r0, r1, options)) << "chunk " << i;
      for (int64_t b = 0; b < shape.batch; ++b) {
        for (int64_t j = 0; j * chunk < shape.columns; ++j) {
          bool seen = false;
          for (int64_t h = 0; h < shape.heads && !seen; ++h) {
            for (int64_t r = r0; r < r1 && !seen; ++r) {
              for (int64_t c = j * chunk; c < std::min((j + 1) * chunk, shape.columns); ++c) {
                seen = seen || mask.visible(b, h, r, c);
              }
            }
          }
          EXPECT_EQ(needs.needs(b, i, j), seen) << "batch " << b << " chunks " << i << ',' << j;
        }
      }
    }
    if (::testing::Test::HasFailure()) FAIL() << describe(mask);
  }
}

TEST(Property, minmax_loads_are_the_row_costs_of_the_map) {
  for (int64_t step = 0; step < kMasks / 10; ++step) {
    Random random(static_cast<std::uint64_t>(2'000'000 + step));
    const ColumnMask mask = random_mask(random_shape(random, 3 + step * 370 / kMasks), random);
    const TileShape tile{static_cast<std::int32_t>(random.integer(1, 9)),
                         static_cast<std::int32_t>(random.integer(1, 9))};
    const int64_t blocks = random.integer(1, 3);  // row blocks a chunk
    const TileCosts costs{.partial = random.integer(0, 20), .unmasked = random.integer(0, 20)};
    const TileMap map = TileMap::build(mask, tile);
    const auto loads = chunk_loads(mask, blocks * tile.block_m, {.tile_shape = tile, .costs = costs});
    std::vector<int64_t> expected(loads.size(), 0);
    for (const RowBlock& block : map.heaviest_first()) {
      expected.at(static_cast<std::size_t>(block.block / blocks)) +=
          map.row_cost(block.batch, block.head, block.block, costs);
    }
    ASSERT_EQ(loads, expected) << "seed " << step << '\n' << describe(mask);
  }
}

}  // namespace
}  // namespace flashmask
