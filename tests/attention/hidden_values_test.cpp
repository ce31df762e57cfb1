// What a row does not see cannot reach it, whatever it holds: NaN and infinities of hidden columns and rows.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "flashmask/builders.hpp"
#include "support/attention_call.hpp"

namespace flashmask {
namespace {

using std::int64_t;
using testing::Call;
using testing::Layout;
using testing::Random;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kDraws = 12;
#else
constexpr int64_t kDraws = 120;
#endif

constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()};

/// Fills one position of every head with a value that is not finite, or one element of it.
void spoil(testing::Tensor& tensor, const AttentionShape& s, int64_t heads, int64_t position, Random& random) {
  const float bad = kBad[random.integer(0, 2)];
  const int64_t only = random.one_in(2) ? random.integer(0, s.head_dim - 1) : -1;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < s.head_dim; ++d) {
        if (only < 0 || d == only) tensor.set(b, position, h, d, bad);
      }
    }
  }
}

class Draw {
 public:
  explicit Draw(int64_t step) : random_(static_cast<std::uint64_t>(500 + step)), clean_(make(step)), spoilt_(clean_) {
    clean_.run();
    const AttentionShape& s = clean_.shape;
    bad_rows_.assign(static_cast<std::size_t>(s.rows), 0);
    bad_columns_.assign(static_cast<std::size_t>(s.columns), 0);
    for (auto [bad, tensors, heads] : {std::tuple{&bad_columns_, std::array{&spoilt_.k, &spoilt_.v}, s.kv_heads},
                                       std::tuple{&bad_rows_, std::array{&spoilt_.q, &spoilt_.dout}, s.query_heads}}) {
      for (int64_t n = random_.integer(0, 4); n > 0; --n) {
        const int64_t at = random_.integer(0, static_cast<int64_t>(bad->size()) - 1);
        (*bad)[static_cast<std::size_t>(at)] = 1;
        for (testing::Tensor* tensor : tensors) spoil(*tensor, s, heads, at, random_);
      }
    }
    spoilt_.map = nullptr;
    spoilt_.run();
  }

  /// Checks every row and column that nothing spoilt can reach, and returns how many there are.
  int64_t expect_untouched() {
    const AttentionShape& s = clean_.shape;
    int64_t checked = 0;
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t h = 0; h < s.query_heads; ++h) {
        for (int64_t i = 0; i < s.rows; ++i) {
          if (!row_is_clean(b, h, i)) continue;
          ++checked;
          EXPECT_EQ(spoilt_.lse_at(b, h, i), clean_.lse_at(b, h, i)) << "row " << i;
          expect_same(spoilt_.out, clean_.out, b, i, h, "out of row");
          expect_same(spoilt_.dq, clean_.dq, b, i, h, "dq of row");
        }
      }
      for (int64_t h = 0; h < s.kv_heads; ++h) {
        for (int64_t j = 0; j < s.columns; ++j) {
          if (!column_is_clean(b, h, j)) continue;
          ++checked;
          expect_same(spoilt_.dk, clean_.dk, b, j, h, "dk of column");
          expect_same(spoilt_.dv, clean_.dv, b, j, h, "dv of column");
        }
      }
    }
    return checked;
  }

 private:
  Call make(int64_t step) {
    const int64_t kv_heads = random_.integer(1, 2);
    const AttentionShape s{.batch = random_.integer(1, 2),
                           .rows = random_.integer(1, 20 + step * 120 / kDraws),
                           .columns = random_.integer(1, 20 + step * 120 / kDraws),
                           .query_heads = kv_heads * random_.integer(1, 2),
                           .kv_heads = kv_heads,
                           .head_dim = random_.integer(1, 40)};
    return {s, testing::random_mask({s.batch, random_.one_in(2) ? 1 : s.query_heads, s.rows, s.columns}, random_),
            static_cast<DType>(random_.integer(0, 2)), static_cast<Layout>(random_.integer(0, 2)),
            static_cast<std::uint64_t>(step)};
  }
  [[nodiscard]] bool visible(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return clean_.mask.visible(b, h / (clean_.shape.query_heads / clean_.mask.shape().heads), i, j);
  }
  [[nodiscard]] bool row_is_clean(int64_t b, int64_t h, int64_t i) const {
    bool clean = true, sees = false;
    for (int64_t j = 0; j < clean_.shape.columns; ++j) {
      if (!visible(b, h, i, j)) continue;
      sees = true;
      clean = clean && bad_columns_[static_cast<std::size_t>(j)] == 0;
    }
    return !sees || (clean && bad_rows_[static_cast<std::size_t>(i)] == 0);
  }
  [[nodiscard]] bool column_is_clean(int64_t b, int64_t kv_head, int64_t j) const {
    const int64_t group = clean_.shape.query_heads / clean_.shape.kv_heads;
    bool clean = true, seen = false;
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (int64_t i = 0; i < clean_.shape.rows; ++i) {
        if (!visible(b, h, i, j)) continue;
        seen = true;
        clean = clean && row_is_clean(b, h, i);
      }
    }
    return !seen || clean;
  }
  static void expect_same(const testing::Tensor& got, const testing::Tensor& expected, int64_t b, int64_t i, int64_t h,
                          const char* what) {
    for (int64_t d = 0; d < got.extent(3); ++d) {
      ASSERT_EQ(got.get(b, i, h, d), expected.get(b, i, h, d)) << what << ' ' << i << ", element " << d;
    }
  }

  Random random_;
  Call clean_, spoilt_;
  std::vector<char> bad_rows_, bad_columns_;
};

TEST(HiddenValues, that_are_not_finite_reach_no_row_and_no_column_that_does_not_see_them) {
  int64_t checked = 0;
  for (int64_t step = 0; step < kDraws; ++step) {
    SCOPED_TRACE(::testing::Message() << "draw " << step);
    Draw draw(step);
    checked += draw.expect_untouched();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(checked, 5 * kDraws);
}

TEST(HiddenValues, a_nan_shows_in_every_row_that_sees_it_and_in_its_own_element) {
  const AttentionShape s{.rows = 200, .columns = 200, .query_heads = 1, .kv_heads = 1, .head_dim = 8};
  Call call(s, masks::sliding_window({1, 1, 200, 200}, 30), DType::bf16);
  call.v.set(0, 100, 0, 5, std::nanf(""));
  call.dout.set(0, 150, 0, 3, std::nanf(""));
  call.run();
  for (int64_t i = 0; i < 200; ++i) {
    for (int64_t d = 0; d < 8; ++d) {
      EXPECT_EQ(std::isnan(call.out.get(0, i, 0, d)), call.mask.visible(0, 0, i, 100) && d == 5) << i << ',' << d;
      EXPECT_EQ(std::isnan(call.dv.get(0, i, 0, d)), call.mask.visible(0, 0, 150, i) && d == 3) << i << ',' << d;
    }
  }
}

TEST(HiddenValues, padding_that_nobody_initialised_changes_no_bit_of_the_documents) {
  const AttentionShape s{.rows = 150, .columns = 150, .query_heads = 4, .kv_heads = 2, .head_dim = 64};
  const std::vector<masks::Document> documents{{.length = 70}, {.length = 45}};  // 35 dead tokens
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Call clean(s, masks::causal_document({1, 1, 150, 150}, masks::Packing(documents)), dtype);
    Call spoilt = clean;
    for (int64_t i = 115; i < 150; ++i) {
      for (int64_t d = 0; d < s.head_dim; ++d) {
        for (int64_t h = 0; h < 4; ++h) {
          spoilt.q.set(0, i, h, d, std::nanf(""));
          spoilt.dout.set(0, i, h, d, std::nanf(""));
          if (h < 2) spoilt.k.set(0, i, h, d, std::nanf(""));
          if (h < 2) spoilt.v.set(0, i, h, d, std::nanf(""));
        }
      }
    }
    clean.run();
    spoilt.run();
    EXPECT_EQ(spoilt.result_bytes(), clean.result_bytes()) << to_string(dtype);
  }
}

}  // namespace
}  // namespace flashmask
