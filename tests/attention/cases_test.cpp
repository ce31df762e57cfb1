// CASES.md part A at attention level: O, LSE, dQ, dK and dV over NaN-poisoned memory, against the float64 oracle and
// the golden row counts.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "flashmask/attention.hpp"
#include "flashmask/builders.hpp"
#include "support/attention_call.hpp"

namespace flashmask {
namespace {

using std::int32_t;
using std::int64_t;
using testing::Call;
using testing::Layout;
using Counts = std::vector<int64_t>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr float kInfinity = std::numeric_limits<float>::infinity();

AttentionShape self(int64_t n, int64_t head_dim = 16) {
  return {.rows = n, .columns = n, .query_heads = 1, .kv_heads = 1, .head_dim = head_dim};
}

/// A mask of one (batch, head) from a function of the column.
template <typename F>
ColumnMask mask_of(int64_t rows, int64_t columns, const F& f) {
  ColumnMask mask({1, 1, rows, columns});
  for (int32_t j = 0; j < columns; ++j) mask.set(0, 0, j, f(j));
  return mask;
}

ColumnMask startend(const MaskShape& shape, bool causal, int64_t vectors, const std::vector<int32_t>& values) {
  return masks::from_startend_row_indices(shape, causal, vectors, values);
}

/// LTS (or LTS, second vector) per column, causal or not.
template <typename F>
ColumnMask one_vector(int64_t rows, int64_t columns, const F& lts) {
  std::vector<int32_t> values;
  for (int32_t j = 0; j < columns; ++j) values.push_back(lts(j));
  return startend({1, 1, rows, columns}, true, 1, values);
}

ColumnMask two_vectors(int64_t n, int32_t lts, int32_t ute) {
  std::vector<int32_t> values;
  for (int64_t j = 0; j < n; ++j) values.insert(values.end(), {lts, ute});
  return startend({1, 1, n, n}, false, 2, values);
}

/// Runs forward and backward in every dtype and checks everything; f(call) may look closer.
template <typename F>
void expect_right(const AttentionShape& shape, const ColumnMask& mask, const F& f) {
  for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
    if (kSanitized && dtype != DType::bf16) break;
    SCOPED_TRACE(to_string(dtype));
    Call call(shape, mask, dtype);
    call.run();
    testing::expect_matches_oracle(call);
    f(call);
    testing::expect_count_probe(call);
  }
}
void expect_right(const AttentionShape& shape, const ColumnMask& mask) {
  expect_right(shape, mask, [](const Call&) {});
}

void expect_counts(const ColumnMask& mask, const Counts& counts) {
  EXPECT_EQ(mask.row_counts(0, 0), counts);
}

/// Output 0, LSE -inf, dQ 0 for rows [begin, end) of every head of batch 0.
void expect_dead_rows(const Call& call, int64_t begin, int64_t end) {
  for (int64_t h = 0; h < call.shape.query_heads; ++h) {
    for (int64_t i = begin; i < end; ++i) {
      EXPECT_EQ(call.lse_at(0, h, i), -kInfinity) << "row " << i;
      for (int64_t d = 0; d < call.shape.head_dim; ++d) {
        EXPECT_EQ(call.out.get(0, i, h, d), 0.0F) << "row " << i;
        EXPECT_EQ(call.dq.get(0, i, h, d), 0.0F) << "row " << i;
      }
    }
  }
}
void expect_dead_columns(const Call& call, const std::vector<int64_t>& columns) {
  for (const int64_t j : columns) {
    for (int64_t d = 0; d < call.shape.head_dim; ++d) {
      EXPECT_EQ(call.dk.get(0, j, 0, d), 0.0F) << "column " << j;
      EXPECT_EQ(call.dv.get(0, j, 0, d), 0.0F) << "column " << j;
    }
  }
}
/// Every row sees its own column alone: O = V exactly, dQ = dK = 0 exactly.
void expect_identity(const Call& call, int64_t query_head, int64_t kv_head) {
  for (int64_t i = 0; i < call.shape.rows; ++i) {
    for (int64_t d = 0; d < call.shape.head_dim; ++d) {
      ASSERT_EQ(call.out.get(0, i, query_head, d), call.v.get(0, i, kv_head, d)) << "row " << i;
      ASSERT_EQ(call.dq.get(0, i, query_head, d), 0.0F) << "row " << i;
    }
  }
}

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

ColumnMask causal(int64_t rows, int64_t columns) {
  return masks::causal({1, 1, rows, columns});
}

AttentionShape cross(int64_t rows, int64_t columns, int64_t head_dim = 16) {
  return {.rows = rows, .columns = columns, .query_heads = 1, .kv_heads = 1, .head_dim = head_dim};
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

/// Compares a few rows and columns of a long call with the oracle.
void expect_samples_match(Call& call, const std::vector<int64_t>& rows, const std::vector<int64_t>& columns) {
  using cpu::reference::Precision;
  const auto problem = cpu::reference::problem_of(call.backward_arguments());
  const int64_t dim = call.shape.head_dim;
  const auto pick = [&](const testing::Tensor& t, const std::vector<int64_t>& positions) {
    std::vector<double> values;
    for (const int64_t i : positions) {
      for (int64_t d = 0; d < dim; ++d) values.push_back(t.get(0, i, 0, d));
    }
    return values;
  };
  const auto both = [&](auto f) { return std::pair{f(Precision::float64), f(Precision::input)}; };
  const auto [row, row_naive] = both([&](auto p) { return forward_rows(problem, 0, 0, rows, p, 2); });
  const auto [dq, dq_naive] = both([&](auto p) { return dq_rows(problem, 0, 0, rows, p, 2); });
  const auto [kv, kv_naive] = both([&](auto p) { return dkdv_columns(problem, 0, 0, columns, p, 2); });
  std::vector<double> lse;
  for (const int64_t i : rows) lse.push_back(call.lse_at(0, 0, i));
  testing::expect_close("out", pick(call.out, rows), row.out, row_naive.out, call.q.dtype());
  testing::expect_close("lse", lse, row.lse, row_naive.lse, DType::f32);
  testing::expect_close("dq", pick(call.dq, rows), dq, dq_naive, call.q.dtype());
  testing::expect_close("dk", pick(call.dk, columns), kv.dk, kv_naive.dk, call.q.dtype());
  testing::expect_close("dv", pick(call.dv, columns), kv.dv, kv_naive.dv, call.q.dtype());
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

TEST(Cases, A21_grouped_heads_ragged_causal) {
  const AttentionShape shape{.rows = 239, .columns = 203, .query_heads = 6, .kv_heads = 2, .head_dim = 80};
  Call call(shape, masks::causal({1, 1, 239, 203}), DType::bf16);
  call.run();
  testing::expect_matches_oracle(call);
  expect_dead_rows(call, 0, 36);
  testing::expect_count_probe(call);
}

TEST(Cases, A22_dead_columns_over_poisoned_outputs) {
  std::vector<int32_t> values;
  std::vector<int64_t> dead;
  for (int32_t j = 0; j < 256; ++j) {
    values.insert(values.end(), {j < 128 ? 256 : 0, 0});
    if (j >= 128) dead.push_back(j);
  }
  expect_right(self(256), startend({1, 1, 256, 256}, false, 2, values),
               [&](const Call& call) { expect_dead_columns(call, dead); });
}

TEST(Cases, A23_documents_64_and_36) {
  const ColumnMask mask =
      masks::document({1, 1, 100, 100}, masks::Packing({masks::Document{.length = 64}, masks::Document{.length = 36}}));
  const TileMap map = TileMap::build(mask, {64, 64});
  EXPECT_EQ(map.counts(), (TileCounts{2, 0, 2}));
  Call call(self(100), mask, DType::bf16);
  call.map = &map;
  call.run();
  testing::expect_matches_oracle(call);
}

TEST(Cases, A24_sixty_four_rows_around_16384_columns) {
  for (const int64_t columns : kSanitized ? Counts{16385} : Counts{16383, 16384, 16385, 16512, 16513, 32769}) {
    for (const int64_t head_dim : {64, 128}) {
      if (head_dim == 128 && (kSanitized || columns != 16385)) continue;
      SCOPED_TRACE(::testing::Message() << columns << " columns, head_dim " << head_dim);
      Call call(cross(64, columns, head_dim), causal(64, columns), DType::bf16);
      call.run();
      const Counts sample =
          kSanitized ? Counts{columns - 1} : Counts{0, columns - 65, columns - 64, columns - 63, columns - 1};
      expect_samples_match(call, {0, 31, 63}, sample);
    }
  }
}

TEST(Cases, A26_every_layout_equals_its_own_reference) {
  const AttentionShape shape{
      .batch = 2, .rows = 64, .columns = 64, .query_heads = kSanitized ? 8 : 64, .kv_heads = 8, .head_dim = 8};
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::transposed}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (kSanitized && dtype == DType::f32) continue;
      Call call(shape, masks::causal({2, 1, 64, 64}), dtype, layout);
      call.run();
      testing::expect_matches_oracle(call);
    }
  }
}

/// Query-head masks where some heads see nothing of whole tiles, or nothing at all.
ColumnMask mask_with_empty_tiles(int64_t n, int64_t heads) {
  ColumnMask mask({1, heads, n, n});
  for (int64_t h = 0; h < heads; ++h) {
    for (int32_t j = 0; j < n; ++j) {
      const int32_t end = h % 4 == 3 ? 0 : static_cast<int32_t>(std::min<int64_t>(n, j + 1 + h * 70));
      mask.set(0, h, j, {end, static_cast<int32_t>(n), 0, j});
    }
  }
  return mask;
}

TEST(Cases, A30_twenty_runs_and_any_thread_count_give_the_same_bits) {
  const int64_t n = 200;
  for (const int64_t kv_heads : {8, 2, 1}) {
    for (const int64_t mask_heads : {int64_t{1}, kv_heads, int64_t{8}}) {
      const AttentionShape shape{.rows = n, .columns = n, .query_heads = 8, .kv_heads = kv_heads, .head_dim = 32};
      Call call(shape, mask_with_empty_tiles(n, mask_heads), DType::bf16);
      call.threads = 1;
      call.run();
      const auto first = call.result_bytes();
      for (int run = 0; run < (kSanitized ? 4 : 20); ++run) {
        call.threads = 1 + run % 5;
        call.run();
        ASSERT_EQ(call.result_bytes(), first) << "run " << run << " kv heads " << kv_heads;
      }
    }
  }
}

TEST(Cases, A31_interleaved_calls_and_a_reused_argument_struct) {
  std::vector<Call> calls;
  std::vector<std::vector<std::uint8_t>> serial;
  for (const int64_t n : {130, 64, 1, 200}) {
    calls.emplace_back(self(n), causal(n, n), DType::bf16, Layout::bshd, static_cast<std::uint64_t>(n));
    calls.back().threads = 1;
    calls.back().run();
    serial.push_back(calls.back().result_bytes());
  }
  const auto worker = [&](std::size_t first) {
    ForwardArguments arguments;  // one struct for calls of different shapes
    for (int round = 0; round < (kSanitized ? 5 : 25); ++round) {
      for (std::size_t i = first; i < calls.size(); i += 2) {
        arguments = calls[i].forward_arguments();
        forward(arguments);
        backward(calls[i].backward_arguments());
      }
    }
  };
  std::thread other(worker, 1);
  worker(0);
  other.join();
  for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i].result_bytes(), serial[i]) << "call " << i;
}

TEST(Cases, A32_vectors_refilled_in_place) {
  const auto packed = [](const std::vector<int64_t>& lengths) {
    return masks::causal_document({1, 1, 16, 16}, masks::documents_of(lengths));
  };
  Call call(self(16), packed({16}), DType::bf16);
  call.run();
  Call eager_one(self(16), packed({16}), DType::bf16);
  eager_one.run();
  EXPECT_EQ(call.result_bytes(), eager_one.result_bytes());
  const ColumnMask three = packed({5, 5, 6});
  for (int64_t j = 0; j < 16; ++j) call.mask.set(0, 0, j, three.at(0, 0, j));
  call.run();
  Call eager_three(self(16), three, DType::bf16);
  eager_three.run();
  EXPECT_EQ(call.result_bytes(), eager_three.result_bytes());
  EXPECT_NE(call.result_bytes(), eager_one.result_bytes());
}

}  // namespace
}  // namespace flashmask
