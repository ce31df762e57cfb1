// CASES.md part A at attention level, what is seen: A1 to A19. O, LSE, dQ, dK and dV over NaN-poisoned memory, against
// the float64 oracle and the golden row counts.
#include <cmath>

#include "cases_support.hpp"

namespace flashmask {
namespace {

using std::int32_t;
using std::int64_t;
using testing::Call;
using testing::causal;
using testing::Counts;
using testing::cross;
using testing::expect_counts;
using testing::expect_dead_columns;
using testing::expect_dead_rows;
using testing::expect_identity;
using testing::expect_right;
using testing::expect_samples_match;
using testing::kSanitized;
using testing::mask_of;
using testing::one_vector;
using testing::self;
using testing::two_vectors;

TEST(Cases, A1_one_document_and_a_pad) {
  const ColumnMask mask = masks::document({1, 1, 8, 8}, masks::Packing({masks::Document{.length = 7}}));
  expect_counts(mask, {7, 7, 7, 7, 7, 7, 7, 0});
  expect_right(self(8), mask, [](const Call& call) {
    expect_dead_rows(call, 7, 8);
    expect_dead_columns(call, {7});
  });
}

TEST(Cases, A3_document_ids_with_padding_in_the_middle) {
  const std::vector<int32_t> ends{3, 3, 3, 0, 6, 6, 0, 0};
  const ColumnMask mask = one_vector(8, 8, [&](int32_t j) { return ends[static_cast<std::size_t>(j)]; });
  expect_counts(mask, {1, 2, 3, 0, 1, 2, 0, 0});
  expect_right(self(8), mask, [](const Call& call) {
    expect_dead_rows(call, 3, 4);
    expect_dead_rows(call, 6, 8);
    expect_dead_columns(call, {3, 6, 7});
  });
}

TEST(Cases, A4_every_row_dead) {
  expect_right(self(128), one_vector(128, 128, [](int32_t) { return 0; }), [](const Call& call) {
    expect_dead_rows(call, 0, 128);
    expect_dead_columns(call, {0, 63, 64, 127});
  });
}

TEST(Cases, A5_second_vector_of_a_mask_that_is_not_causal_is_ute) {
  const ColumnMask everything = two_vectors(300, 300, 0);
  expect_counts(everything, Counts(300, 300));
  expect_right(self(300), everything);
  expect_right(self(300), two_vectors(300, 300, 300), [](const Call& call) { expect_dead_rows(call, 0, 300); });
}

TEST(Cases, A6_documents_with_a_ragged_dead_tail) {
  const ColumnMask mask = one_vector(300, 300, [](int32_t j) { return j < 92 ? 92 : j < 155 ? 155 : 272; });
  expect_right(self(300), mask, [](const Call& call) { expect_dead_rows(call, 272, 300); });
}

TEST(Cases, A7_empty_documents_change_no_bit) {
  const masks::Packing with{{masks::Document{.length = 5}, masks::Document{.length = 0}, masks::Document{.length = 3}}};
  const masks::Packing without{{masks::Document{.length = 5}, masks::Document{.length = 3}}};
  Call a(self(8), masks::causal_document({1, 1, 8, 8}, with), DType::bf16);
  Call b(self(8), masks::causal_document({1, 1, 8, 8}, without), DType::bf16);
  a.run();
  b.run();
  EXPECT_EQ(a.result_bytes(), b.result_bytes());
}

TEST(Cases, A8_one_token_documents) {
  const auto diagonal = [](int64_t n) { return one_vector(n, n, [](int32_t j) { return j + 1; }); };
  expect_right(self(257), diagonal(257), [](const Call& call) { expect_identity(call, 0, 0); });
  const int64_t n = 70'000;
  Call call(self(n, 8), diagonal(n), DType::f32);
  call.run();
  expect_identity(call, 0, 0);
  for (int64_t i = 0; i < n; ++i) {
    double score = 0;
    for (int64_t d = 0; d < 8; ++d) score += static_cast<double>(call.q.get(0, i, 0, d)) * call.k.get(0, i, 0, d);
    ASSERT_NEAR(call.lse_at(0, 0, i), score / std::sqrt(8.0), 4e-6) << "row " << i;
    for (int64_t d = 0; d < 8; ++d) {
      ASSERT_NEAR(call.dv.get(0, i, 0, d), call.dout.get(0, i, 0, d), 1e-5) << "column " << i;
      ASSERT_EQ(call.dk.get(0, i, 0, d), 0.0F) << "column " << i;
    }
  }
}

TEST(Cases, A9_one_row_sees_all) {
  expect_counts(causal(1, 127), {127});
  expect_right(cross(1, 127), causal(1, 127));
}

TEST(Cases, A10_more_rows_than_columns_by_one) {
  const auto counts = causal(128, 127).row_counts(0, 0);
  for (int64_t i = 0; i < 128; ++i) EXPECT_EQ(counts[static_cast<std::size_t>(i)], i);
  expect_right(cross(128, 127), causal(128, 127), [](const Call& call) { expect_dead_rows(call, 0, 1); });
}

TEST(Cases, A11_five_rows_three_columns) {
  const ColumnMask mask = one_vector(5, 3, [](int32_t) { return 5; });
  expect_counts(mask, {0, 0, 1, 2, 3});
  expect_right(cross(5, 3), mask, [](const Call& call) { expect_dead_rows(call, 0, 2); });
}

TEST(Cases, A12_few_rows_many_columns) {
  const ColumnMask mask = one_vector(128, 33792, [](int32_t) { return 33792; });
  EXPECT_EQ(mask.row_counts(0, 0)[0], 33665);
  Call call(cross(128, 33792), mask, DType::f32);
  call.run();
  if (kSanitized) {
    expect_samples_match(call, {0}, {33791});  // seen by the last row alone, so the oracle is cheap
  } else {
    expect_samples_match(call, {0, 1, 63, 64, 127}, {0, 4097, 33663, 33664, 33665, 33728, 33791});
  }
  testing::expect_count_probe(call);
}

TEST(Cases, A13_per_head_mask_diagonal_beside_causal) {
  const ColumnMask mask = masks::per_head(std::vector{one_vector(256, 256, [](int32_t j) { return j + 1; }),
                                                      one_vector(256, 256, [](int32_t) { return 256; })});
  const AttentionShape shape{.rows = 256, .columns = 256, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
  expect_right(shape, mask, [](const Call& call) {
    expect_identity(call, 0, 0);
    expect_identity(call, 1, 0);
    for (int64_t i = 0; i < 256; ++i) EXPECT_TRUE(std::isfinite(call.lse_at(0, 2, i)));
  });
}

TEST(Cases, A14_batch_rows_are_independent) {
  const ColumnMask first = one_vector(256, 256, [](int32_t) { return 256; });
  const ColumnMask second = one_vector(256, 256, [](int32_t j) { return j < 128 ? 128 : 256; });
  AttentionShape shape = self(256);
  shape.batch = 2;
  expect_right(shape, masks::stack_batch(std::vector{first, second}));
}

TEST(Cases, A15_an_empty_run_inside_a_tile_hides_nothing) {
  const ColumnMask mask = mask_of(256, 256, [](int32_t) { return HiddenRows{200, 200, 256, 0}; });
  expect_counts(mask, Counts(256, 256));
  expect_right(self(256), mask);
}

TEST(Cases, A16_an_inverted_run_hides_nothing) {
  const ColumnMask mask = mask_of(512, 512, [](int32_t) { return HiddenRows{300, 100, 0, 0}; });
  Call call(self(512), mask, DType::bf16);
  call.run();
  testing::expect_matches_oracle(call);
  testing::expect_count_probe(call);
  expect_counts(mask, Counts(512, 512));
}

TEST(Cases, A17_overlapping_and_touching_runs) {
  for (const HiddenRows runs : {HiddenRows{100, 300, 200, 400}, HiddenRows{100, 250, 250, 400}}) {
    const ColumnMask mask = mask_of(512, 512, [&](int32_t) { return runs; });
    Call call(self(512, 8), mask, DType::f32);
    call.run();
    testing::expect_matches_oracle(call);
    expect_dead_rows(call, 100, 400);
    testing::expect_count_probe(call);
    EXPECT_EQ(mask.row_counts(0, 0)[99], 512);
    EXPECT_EQ(mask.row_counts(0, 0)[400], 512);
  }
}

TEST(Cases, A19_diagonal_dead_and_wide) {
  expect_right(self(256), one_vector(256, 256, [](int32_t j) { return j + 1; }),
               [](const Call& call) { expect_identity(call, 0, 0); });
  expect_right(self(256), one_vector(256, 256, [](int32_t j) { return j; }),
               [](const Call& call) { expect_dead_rows(call, 0, 256); });
  Call wide(self(256), one_vector(256, 256, [](int32_t j) { return std::min(j + 300, 256); }), DType::bf16);
  Call plain(self(256), causal(256, 256), DType::bf16);
  wide.run();
  plain.run();
  EXPECT_EQ(wide.result_bytes(), plain.result_bytes());
}

}  // namespace
}  // namespace flashmask
