// Localisation is lossless: a rank's rows see in the local mask exactly what they see in the global one.
#include "flashmask/localise.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "flashmask/error.hpp"

namespace flashmask {
namespace {

using Chunks = std::vector<std::int32_t>;

// A device can evaluate the same function; so can the compiler.
constexpr std::array<std::int32_t, 2> kOuterChunks{0, 3};
static_assert(localise_row(7, kOuterChunks.data(), 2, 2) == 3);
static_assert(localise_row(6, kOuterChunks.data(), 2, 2) == 2);

ColumnMask four_vectors(std::int64_t rows, const std::vector<HiddenRows>& columns) {
  ColumnMask mask(MaskShape{1, 1, rows, static_cast<std::int64_t>(columns.size())});
  for (std::size_t j = 0; j < columns.size(); ++j) mask.set(0, 0, static_cast<std::int64_t>(j), columns[j]);
  return mask;
}

std::vector<std::int32_t> vector_of(std::span<const std::int32_t> s) {
  return {s.begin(), s.end()};
}

/// Number of owned rows before x, counted one by one: the meaning that localise_row must have.
std::int32_t count_rows_before(std::int32_t x, std::int64_t rows, std::int64_t chunk, const Chunks& chunks) {
  std::int32_t n = 0;
  for (const auto c : chunks) {
    for (std::int64_t r = c * chunk; r < std::min(rows, (c + 1) * chunk); ++r) n += r < x ? 1 : 0;
  }
  return n;
}

TEST(Localise, row_map_counts_the_owned_rows_before_every_boundary) {
  std::mt19937 random(11);
  for (int draw = 0; draw < 300; ++draw) {
    const int rows = std::uniform_int_distribution<int>(0, 70)(random);
    const int chunk = std::uniform_int_distribution<int>(1, 9)(random);
    Chunks chunks;
    for (int c = 0; c * chunk < rows; ++c) {
      if (random() % 2 == 0) chunks.push_back(c);
    }
    for (int x = 0; x <= rows; ++x) {
      ASSERT_EQ(localise_row(x, chunks.data(), static_cast<std::int32_t>(chunks.size()), chunk),
                count_rows_before(x, rows, chunk, chunks))
          << "rows " << rows << " chunk " << chunk << " x " << x;
    }
  }
}

TEST(Localise, boundaries_near_two_to_the_31_do_not_overflow) {
  const Chunks chunks{2147483646};
  EXPECT_EQ(localise_row(2147483647, chunks.data(), 1, 1), 1);
  EXPECT_EQ(localise_row(2147483646, chunks.data(), 1, 1), 0);
  const Chunks far{1};
  EXPECT_EQ(localise_row(2147483647, far.data(), 1, 1500000000), 2147483647 - 1500000000);
}

TEST(Cases, C1_unsorted_chunks_are_refused) {
  const auto mask = four_vectors(8, std::vector<HiddenRows>(8, HiddenRows{2, 8, 0, 0}));
  const Chunks unsorted{3, 0};
  try {
    (void)localise(mask, RankRows{8, 2, unsorted});
    FAIL() << "chunks [3,0] were accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("ascend"), std::string::npos) << e.what();
  }
  const Chunks sorted{0, 3};
  EXPECT_EQ(localise(mask, RankRows{8, 2, sorted}).at(0, 0, 0), (HiddenRows{2, 4, 0, 0}));
}

TEST(Localise, chunks_off_the_axis_or_twice_are_refused) {
  const auto mask = four_vectors(8, std::vector<HiddenRows>(8, HiddenRows{8, 0, 8, 0}));
  for (const Chunks& bad : {Chunks{0, 4}, Chunks{-1}, Chunks{1, 1}}) {
    EXPECT_THROW((void)localise(mask, RankRows{8, 2, bad}), Error);
  }
  const Chunks good{0};
  EXPECT_THROW((void)localise(mask, RankRows{8, 0, good}), Error);
  EXPECT_THROW((void)localise(mask, RankRows{9, 2, good}), Error);
}

struct Draw {
  std::int32_t rows, columns, chunk;
  ColumnMask mask;
  std::vector<Chunks> ranks;
};

Draw draw_case(std::mt19937& random, std::int32_t rows, std::int32_t columns, std::int32_t chunk, int ranks,
               int heads) {
  Draw d{rows, columns, chunk, ColumnMask(MaskShape{1, heads, rows, columns}), std::vector<Chunks>(ranks)};
  std::uniform_int_distribution<std::int32_t> any(-2, rows + 2);
  for (int h = 0; h < heads; ++h) {
    for (std::int32_t j = 0; j < columns; ++j)
      d.mask.set(0, h, j, {any(random), any(random), any(random), any(random)});
  }
  const std::int32_t chunks = (rows + chunk - 1) / chunk;
  for (std::int32_t c = 0; c < chunks; ++c) d.ranks[random() % ranks].push_back(c);
  return d;
}

void expect_same_rows(const Draw& d) {
  for (const auto& chunks : d.ranks) {
    const RankRows rank{d.rows, d.chunk, chunks};
    const auto local = localise(d.mask, rank);
    auto canonical_local = local;
    canonical_local.canonicalise();
    const auto rows = global_rows(rank);
    ASSERT_EQ(static_cast<std::int64_t>(rows.size()), local_rows(rank));
    for (std::int64_t h = 0; h < d.mask.shape().heads; ++h) {
      for (std::int64_t j = 0; j < d.columns; ++j) {
        for (std::size_t i = 0; i < rows.size(); ++i) {
          const bool expected = !d.mask.at(0, h, j).hides(static_cast<std::int32_t>(rows[i]));
          ASSERT_EQ(!local.at(0, h, j).hides(static_cast<std::int32_t>(i)), expected)
              << "head " << h << " column " << j << " local row " << i << " global row " << rows[i];
          ASSERT_EQ(canonical_local.visible(0, h, static_cast<std::int64_t>(i), j), expected);
        }
      }
    }
  }
}

TEST(Cases, C2_random_assignments_and_masks_lose_nothing) {
  std::mt19937 random(2);
  for (int draw = 0; draw < 400; ++draw) expect_same_rows(draw_case(random, 16, 16, 2, 4, 1));
}

TEST(Localise, per_head_ragged_and_rectangular_masks_lose_nothing) {
  std::mt19937 random(3);
  for (int draw = 0; draw < 200; ++draw) {
    const auto rows = std::uniform_int_distribution<std::int32_t>(0, 40)(random);
    const auto columns = std::uniform_int_distribution<std::int32_t>(0, 25)(random);
    const auto chunk = std::uniform_int_distribution<std::int32_t>(1, 7)(random);
    expect_same_rows(draw_case(random, rows, columns, chunk, 1 + static_cast<int>(random() % 5), 3));
  }
}

TEST(Localise, compacted_columns_are_the_listed_chunks_in_order) {
  std::mt19937 random(4);
  for (int draw = 0; draw < 100; ++draw) {
    const Draw d = draw_case(random, 29, 29, 3, 3, 2);  // the last chunk has two rows
    Chunks list;
    for (std::int32_t c = 0; c < 10; ++c) {
      if (random() % 2 == 0) list.push_back(c);
    }
    const auto columns = global_rows(RankRows{29, 3, list});
    for (const auto& chunks : d.ranks) {
      const RankRows rank{29, 3, chunks};
      const std::vector<Chunks> lists{list};
      const auto local = localise(d.mask, rank, lists);
      const auto rows = global_rows(rank);
      ASSERT_EQ(local.shape().columns, static_cast<std::int64_t>(columns.size()));
      for (int h = 0; h < 2; ++h) {
        for (std::size_t j = 0; j < columns.size(); ++j) {
          for (std::size_t i = 0; i < rows.size(); ++i) {
            ASSERT_EQ(local.visible(0, h, static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)),
                      d.mask.visible(0, h, rows[i], columns[j]));
          }
        }
      }
    }
  }
}

TEST(Localise, a_batch_row_with_fewer_chunks_ends_in_dead_columns) {
  const ColumnMask mask(MaskShape{2, 1, 8, 8});
  const Chunks chunks{1, 2};
  const std::vector<Chunks> lists{{0, 1, 3}, {2}};
  const auto local = localise(mask, RankRows{8, 2, chunks}, lists);
  EXPECT_EQ(local.shape(), (MaskShape{2, 1, 4, 6}));
  EXPECT_EQ(local.visible_cells(0, 0), 24);
  EXPECT_EQ(local.visible_cells(1, 0), 8);
  EXPECT_FALSE(local.visible(1, 0, 0, 2));
}

TEST(Cases, C3_causal_boundaries_per_rank) {
  std::vector<HiddenRows> columns;
  for (std::int32_t j = 0; j < 8; ++j) columns.push_back({8, 8, 0, j});
  const auto mask = four_vectors(8, columns);
  const Chunks outer{0, 3}, inner{1, 2};
  auto a = localise(mask, RankRows{8, 2, outer});
  auto b = localise(mask, RankRows{8, 2, inner});
  EXPECT_EQ(vector_of(a.ute()), (std::vector<std::int32_t>{0, 1, 2, 2, 2, 2, 2, 3}));
  EXPECT_EQ(vector_of(b.ute()), (std::vector<std::int32_t>{0, 0, 0, 1, 2, 3, 4, 4}));
  EXPECT_EQ(a.canonicalise().visible_cells() + b.canonicalise().visible_cells(), 36);
}

TEST(Cases, C4_padding_stays_dead_on_every_rank) {
  std::vector<HiddenRows> columns(8, HiddenRows{7, 8, 0, 0});
  columns[7].ute = 8;
  const auto mask = four_vectors(8, columns);
  const Chunks outer{0, 3}, inner{1, 2};
  const auto a = localise(mask, RankRows{8, 2, outer});
  const auto b = localise(mask, RankRows{8, 2, inner});
  EXPECT_EQ(vector_of(a.lts()), std::vector<std::int32_t>(8, 3));
  EXPECT_EQ(vector_of(b.lts()), std::vector<std::int32_t>(8, 4));
  EXPECT_EQ(a.ute()[7], 4);
  EXPECT_EQ(b.ute()[7], 4);
}

TEST(Cases, C6_prefix_lm_documents_per_rank) {
  std::vector<HiddenRows> columns;  // documents 5 (prefix 2) and 3 (prefix 1)
  for (const auto& [lts, ute] :
       std::vector<std::pair<int, int>>{{5, 0}, {5, 0}, {5, 2}, {5, 3}, {5, 4}, {8, 5}, {8, 6}, {8, 7}}) {
    columns.push_back({lts, 8, 0, ute});
  }
  const auto mask = four_vectors(8, columns);
  const Chunks outer{0, 3}, inner{1, 2};
  const auto a = localise(mask, RankRows{8, 2, outer});
  const auto b = localise(mask, RankRows{8, 2, inner});
  EXPECT_EQ(vector_of(a.lts()), (std::vector<std::int32_t>{2, 2, 2, 2, 2, 4, 4, 4}));
  EXPECT_EQ(vector_of(a.ute()), (std::vector<std::int32_t>{0, 0, 2, 2, 2, 2, 2, 3}));
  EXPECT_EQ(vector_of(b.lts()), (std::vector<std::int32_t>{3, 3, 3, 3, 3, 4, 4, 4}));
  EXPECT_EQ(vector_of(b.ute()), (std::vector<std::int32_t>{0, 0, 0, 1, 2, 3, 4, 4}));
}

}  // namespace
}  // namespace flashmask
