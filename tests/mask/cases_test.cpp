// Cases with known right answers, part A, as far as the mask alone shows them.
#include <limits>
#include <numeric>

#include "mask/mask_test_support.hpp"

namespace flashmask::masks {
namespace {

constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t int_min = std::numeric_limits<std::int32_t>::min();
using Counts = std::vector<std::int64_t>;

MaskShape square(std::int64_t n) {
  return {1, 1, n, n};
}
bool is_causal(std::int64_t i, std::int64_t j) {
  return j <= i;
}
bool always(std::int64_t, std::int64_t) {
  return true;
}
bool never(std::int64_t, std::int64_t) {
  return false;
}

/// The outer form with every column from value_of(column, vector).
template <typename ValueOf>
ColumnMask outer(const MaskShape& shape, bool causal, std::int64_t vectors, ValueOf&& value_of) {
  std::vector<std::int32_t> values;
  for (std::int64_t p = 0; p < shape.batch * shape.heads; ++p) {
    for (std::int64_t j = 0; j < shape.columns; ++j) {
      for (std::int64_t v = 0; v < vectors; ++v) values.push_back(static_cast<std::int32_t>(value_of(j, v)));
    }
  }
  return from_startend_row_indices(shape, causal, vectors, values);
}

std::vector<Document> lengths(std::vector<std::int64_t> values) {
  return documents_of(values);
}

TEST(Cases, A1_one_document_and_a_pad) {
  const ColumnMask mask = document(square(8), lengths({7}));
  EXPECT_EQ(row_counts(mask), (Counts{7, 7, 7, 7, 7, 7, 7, 0}));
  EXPECT_EQ(mask.at(0, 0, 7), (HiddenRows{8, 0, 0, 8})) << "a dead column is the upper run (0, rows)";
}

TEST(Cases, A2_two_documents_and_three_pads) {
  EXPECT_EQ(row_counts(document(square(10), lengths({4, 3}))), (Counts{4, 4, 4, 4, 3, 3, 3, 0, 0, 0}));
}

TEST(Cases, A3_document_ids_with_padding_in_the_middle) {
  const std::vector<std::int64_t> ids{1, 1, 1, 0, 2, 2, 0, 0};
  const ColumnMask mask = from_document_ids(ids, 1, IdZero::padding, {.causal = true});
  EXPECT_EQ(row_counts(mask), (Counts{1, 2, 3, 0, 1, 2, 0, 0}));
  for (const std::int64_t j : {3, 6, 7}) EXPECT_EQ(hidden_count(mask.at(0, 0, j)), 8) << "column " << j;
}

TEST(Cases, A4_every_row_dead) {
  EXPECT_TRUE(sees(outer(square(128), true, 1, [](auto, auto) { return 0; }), never));
}

TEST(Cases, A5_two_vectors_not_causal_are_lts_and_ute) {
  EXPECT_TRUE(sees(outer(square(300), false, 2, [](auto, auto v) { return v == 0 ? 300 : 0; }), always));
  EXPECT_TRUE(sees(outer(square(300), false, 2, [](auto, auto) { return 300; }), never));
}

TEST(Cases, A6_causal_documents_with_a_dead_tail) {
  const auto lts = [](std::int64_t j, auto) { return j < 92 ? 92 : j < 155 ? 155 : 272; };
  const ColumnMask mask = outer(square(300), true, 1, lts);
  EXPECT_TRUE(sees(mask, [](std::int64_t i, std::int64_t j) {
    const auto document_of = [](std::int64_t t) { return t < 92 ? 0 : t < 155 ? 1 : t < 272 ? 2 : 3; };
    return i < 272 && j <= i && document_of(i) == document_of(j);
  }));
  EXPECT_EQ(mask, causal_document(square(300), lengths({92, 63, 117})));
}

TEST(Cases, A7_empty_documents_vanish) {
  for (const auto builder : {causal_document, document, share_question, causal_blockwise, prefix_lm_document}) {
    EXPECT_EQ(builder(square(8), lengths({5, 0, 3})), builder(square(8), lengths({5, 3})));
    EXPECT_EQ(builder(square(8), lengths({0, 5, 3, 0})), builder(square(8), lengths({5, 3})));
  }
}

TEST(Cases, A8_one_token_documents_at_257_and_70000) {
  for (const std::int64_t n : {257, 70000}) {
    const std::vector<Document> documents(static_cast<std::size_t>(n), Document{.length = 1});
    for (const auto builder : {causal_document, document}) {
      const ColumnMask mask = builder(square(n), documents);
      EXPECT_EQ(row_counts(mask), Counts(static_cast<std::size_t>(n), 1));
      EXPECT_TRUE(mask.visible(0, 0, n - 1, n - 1));
      EXPECT_FALSE(mask.visible(0, 0, n - 1, n - 2));
    }
  }
}

TEST(Cases, A9_one_row_sees_all_127_columns) {
  EXPECT_EQ(row_counts(causal({1, 1, 1, 127})), (Counts{127}));
}

TEST(Cases, A10_row_0_dead_and_row_i_sees_i_columns) {
  const ColumnMask mask = causal({1, 1, 128, 127});
  EXPECT_TRUE(sees(mask, [](std::int64_t i, std::int64_t j) { return j < i; }));
}

TEST(Cases, A11_more_rows_than_columns) {
  const ColumnMask mask = outer({1, 1, 5, 3}, true, 1, [](auto, auto) { return 5; });
  EXPECT_EQ(row_counts(mask), (Counts{0, 0, 1, 2, 3}));
}

TEST(Cases, A12_long_columns_bottom_right) {
  const MaskShape shape{1, 1, 128, 33792};
  const ColumnMask mask = outer(shape, true, 1, [](auto, auto) { return int_max; });
  EXPECT_EQ(mask, causal(shape));
  EXPECT_EQ(row_counts(mask).front(), 33665);
  EXPECT_EQ(row_counts(mask).back(), 33792);
}

TEST(Cases, A13_per_head_mask_diagonal_beside_causal) {
  const std::vector<ColumnMask> heads{outer(square(256), true, 1, [](std::int64_t j, auto) { return j + 1; }),
                                      outer(square(256), true, 1, [](auto, auto) { return 256; })};
  const ColumnMask mask = per_head(heads);
  EXPECT_EQ(mask.shape(), (MaskShape{1, 2, 256, 256}));
  EXPECT_TRUE(sees(
      mask, [](std::int64_t i, std::int64_t j) { return i == j; }, 0, 0));
  EXPECT_TRUE(sees(mask, is_causal, 0, 1));
}

TEST(Cases, A14_batch_rows_are_independent) {
  const std::vector<ColumnMask> rows{
      outer(square(256), true, 1, [](auto, auto) { return 256; }),
      outer(square(256), true, 1, [](std::int64_t j, auto) { return j < 128 ? 128 : 256; })};
  const ColumnMask mask = stack_batch(rows);
  EXPECT_EQ(mask.shape(), (MaskShape{2, 1, 256, 256}));
  EXPECT_TRUE(sees(mask, is_causal, 0, 0));
  EXPECT_TRUE(sees(
      mask, [](auto i, auto j) { return j <= i && (i < 128 || j >= 128); }, 1, 0));
}

TEST(Cases, A15_an_empty_run_hides_nothing) {
  EXPECT_TRUE(sees(outer(square(256), false, 4, [](auto, auto v) { return v < 2 ? 200 : 0; }), always));
}

TEST(Cases, A16_an_inverted_run_hides_nothing) {
  EXPECT_TRUE(sees(outer(square(512), false, 4, [](auto, auto v) { return v == 0 ? 300 : v == 1 ? 100 : 0; }), always));
}

TEST(Cases, A17_overlapping_and_touching_runs_are_one) {
  const std::vector<std::vector<std::int32_t>> columns{{100, 300, 200, 400}, {100, 250, 250, 400}};
  for (const auto& quad : columns) {
    const ColumnMask mask = outer(square(512), false, 4, [&](auto, std::int64_t v) { return quad[v]; });
    EXPECT_TRUE(sees(mask, [](std::int64_t i, auto) { return i < 100 || i >= 400; }));
    EXPECT_EQ(mask.at(0, 0, 0), (HiddenRows{100, 400, 512, 0}));
    EXPECT_EQ(mask.visible_cells(), 512 * 212);
  }
}

TEST(Cases, A18_values_out_of_range_are_clamped) {
  EXPECT_EQ(outer(square(64), true, 1, [](auto, auto) { return 65; }), causal(square(64)));
  EXPECT_EQ(outer(square(64), true, 1, [](auto, auto) { return int_max; }), causal(square(64)));
  const ColumnMask zero = outer(square(64), false, 2, [](std::int64_t j, auto v) { return v == 0 ? j + 1 : 0; });
  for (const std::int32_t ute : {-3, int_min}) {
    EXPECT_EQ(outer(square(64), false, 2, [&](std::int64_t j, auto v) { return v == 0 ? j + 1 : ute; }), zero);
  }
  EXPECT_TRUE(sees(outer(square(64), false, 2, [](auto, auto) { return int_max; }), never));
  EXPECT_TRUE(sees(outer(square(64), false, 2, [](auto, auto) { return int_min; }), never));
}

TEST(Cases, A19_diagonal_dead_and_wide_windows) {
  EXPECT_TRUE(sees(outer(square(256), true, 1, [](std::int64_t j, auto) { return j + 1; }),
                   [](auto i, auto j) { return i == j; }));
  EXPECT_TRUE(sees(outer(square(256), true, 1, [](std::int64_t j, auto) { return j; }), never));
  EXPECT_EQ(outer(square(256), true, 1, [](std::int64_t j, auto) { return std::min<std::int64_t>(j + 300, 256); }),
            causal(square(256)));
}

TEST(Cases, A20_global_window_extremes) {
  EXPECT_EQ(global_sliding_window(square(64), 16, 100), full(square(64)));
  EXPECT_EQ(global_sliding_window(square(64), 64, 0), full(square(64)));
  EXPECT_TRUE(sees(global_sliding_window(square(64), 0, 0), [](auto i, auto j) { return i == j; }));
}

TEST(Cases, A25_window_with_unbounded_sides) {
  const auto any = WindowSide::unbounded();
  const auto none = WindowSide::keys(0);
  EXPECT_EQ(window(square(100), any, any), full(square(100)));
  EXPECT_EQ(window(square(100), any, none), causal(square(100)));
  EXPECT_TRUE(sees(window(square(100), none, none), [](auto i, auto j) { return i == j; }));
}

TEST(Cases, A27_prefix_tree_is_one_causal_vector) {
  // P(2) -> A(1) -> {R0(2), R1(1)}, P -> B(1) -> {R2(1), R3(2)}
  const std::vector<TreeNode> nodes{{{}, 2}, {0, 1}, {1, 2}, {1, 1}, {0, 1}, {4, 1}, {4, 2}};
  const ColumnMask mask = prefix_tree(square(10), std::span(&nodes, 1));
  const std::vector<std::int32_t> lts{10, 10, 6, 5, 5, 6, 10, 8, 10, 10};
  EXPECT_EQ(mask, outer(square(10), true, 1, [&](std::int64_t j, auto) { return lts[j]; }));
  EXPECT_EQ(prefix_tree_positions(nodes), (Counts{0, 1, 2, 3, 4, 3, 2, 3, 3, 4}));
  EXPECT_EQ(row_counts(mask), (Counts{1, 2, 3, 4, 5, 4, 3, 4, 4, 5}));
}

TEST(Cases, A28_share_question_with_two_packs) {
  const std::vector<Document> documents{{.length = 7, .prefix = 2, .answers = {2, 3}},
                                        {.length = 3, .answers = {1, 1}}};
  const ColumnMask mask = share_question(square(10), documents);
  const std::vector<std::int32_t> lts{7, 7, 4, 4, 7, 7, 7, 10, 9, 10};
  EXPECT_EQ(mask, outer(square(10), true, 1, [&](std::int64_t j, auto) { return lts[j]; }));
  EXPECT_EQ(row_counts(mask), (Counts{1, 2, 3, 4, 3, 4, 5, 1, 2, 2}));
}

TEST(Cases, A29_prefix_lm_documents) {
  const std::vector<Document> documents{{.length = 5, .prefix = 2}, {.length = 3, .prefix = 1}};
  EXPECT_EQ(row_counts(prefix_lm_document(square(8), documents)), (Counts{2, 2, 3, 4, 5, 1, 2, 3}));
}

TEST(Cases, A33_position_ids_by_two_rules) {
  const std::vector<std::int64_t> positions{0, 1, 2, 3, 1};
  const ColumnMask one = from_position_ids(positions, 1, PositionRule::starts_at_zero, true);
  const ColumnMask two = from_position_ids(positions, 1, PositionRule::breaks_consecution, true);
  EXPECT_EQ(row_counts(one), (Counts{1, 2, 3, 4, 5}));
  EXPECT_EQ(row_counts(two), (Counts{1, 2, 3, 4, 1}));
}

}  // namespace
}  // namespace flashmask::masks
