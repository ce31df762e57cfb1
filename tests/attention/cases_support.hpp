// Masks and checks that the numbered cases at attention level share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "flashmask/attention.hpp"
#include "flashmask/builders.hpp"
#include "support/attention_call.hpp"

namespace flashmask::testing {

using std::int32_t;
using std::int64_t;
using Counts = std::vector<int64_t>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline AttentionShape self(int64_t n, int64_t head_dim = 16) {
  return {.rows = n, .columns = n, .query_heads = 1, .kv_heads = 1, .head_dim = head_dim};
}

/// A mask of one (batch, head) from a function of the column.
template <typename F>
ColumnMask mask_of(int64_t rows, int64_t columns, const F& f) {
  ColumnMask mask({1, 1, rows, columns});
  for (int32_t j = 0; j < columns; ++j) mask.set(0, 0, j, f(j));
  return mask;
}

inline ColumnMask startend(const MaskShape& shape, bool causal, int64_t vectors, const std::vector<int32_t>& values) {
  return masks::from_startend_row_indices(shape, causal, vectors, values);
}

/// LTS (or LTS, second vector) per column, causal or not.
template <typename F>
ColumnMask one_vector(int64_t rows, int64_t columns, const F& lts) {
  std::vector<int32_t> values;
  for (int32_t j = 0; j < columns; ++j) values.push_back(lts(j));
  return startend({1, 1, rows, columns}, true, 1, values);
}

inline ColumnMask two_vectors(int64_t n, int32_t lts, int32_t ute) {
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
    expect_matches_oracle(call);
    f(call);
    expect_count_probe(call);
  }
}
inline void expect_right(const AttentionShape& shape, const ColumnMask& mask) {
  expect_right(shape, mask, [](const Call&) {});
}

inline void expect_counts(const ColumnMask& mask, const Counts& counts) {
  EXPECT_EQ(mask.row_counts(0, 0), counts);
}

/// Output 0, LSE -inf, dQ 0 for rows [begin, end) of every head of batch 0.
inline void expect_dead_rows(const Call& call, int64_t begin, int64_t end) {
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
inline void expect_dead_columns(const Call& call, const std::vector<int64_t>& columns) {
  for (const int64_t j : columns) {
    for (int64_t d = 0; d < call.shape.head_dim; ++d) {
      EXPECT_EQ(call.dk.get(0, j, 0, d), 0.0F) << "column " << j;
      EXPECT_EQ(call.dv.get(0, j, 0, d), 0.0F) << "column " << j;
    }
  }
}
/// Every row sees its own column alone: O = V exactly, dQ = dK = 0 exactly.
inline void expect_identity(const Call& call, int64_t query_head, int64_t kv_head) {
  for (int64_t i = 0; i < call.shape.rows; ++i) {
    for (int64_t d = 0; d < call.shape.head_dim; ++d) {
      ASSERT_EQ(call.out.get(0, i, query_head, d), call.v.get(0, i, kv_head, d)) << "row " << i;
      ASSERT_EQ(call.dq.get(0, i, query_head, d), 0.0F) << "row " << i;
    }
  }
}

inline ColumnMask causal(int64_t rows, int64_t columns) {
  return masks::causal({1, 1, rows, columns});
}

inline AttentionShape cross(int64_t rows, int64_t columns, int64_t head_dim = 16) {
  return {.rows = rows, .columns = columns, .query_heads = 1, .kv_heads = 1, .head_dim = head_dim};
}

/// Compares a few rows and columns of a long call with the oracle.
inline void expect_samples_match(Call& call, const std::vector<int64_t>& rows, const std::vector<int64_t>& columns) {
  using cpu::reference::Precision;
  const auto problem = cpu::reference::problem_of(call.backward_arguments());
  const int64_t dim = call.shape.head_dim;
  const auto pick = [&](const Tensor& t, const std::vector<int64_t>& positions) {
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
  expect_close("out", pick(call.out, rows), row.out, row_naive.out, call.q.dtype());
  expect_close("lse", lse, row.lse, row_naive.lse, DType::f32);
  expect_close("dq", pick(call.dq, rows), dq, dq_naive, call.q.dtype());
  expect_close("dk", pick(call.dk, columns), kv.dk, kv_naive.dk, call.q.dtype());
  expect_close("dv", pick(call.dv, columns), kv.dv, kv_naive.dv, call.q.dtype());
}

}  // namespace flashmask::testing
