// The device oracle against what can be said without any oracle; against the CPU oracle cell by cell.
#include "device/naive_reference.cuh"

#include <gtest/gtest.h>

#include "cpu/reference.hpp"
#include "device/compare.hpp"
#include "support/mask_families.hpp"

namespace flashmask::device {
namespace {

using flashmask::testing::Random;
using flashmask::testing::random_attention_shape;
using flashmask::testing::random_family_mask;
using flashmask::testing::RawMask;

TEST(NaiveReference, with_zero_queries_the_lse_is_the_logarithm_of_the_visible_columns) {
  for (int n = 0; n < 30; ++n) {
    Random random(n);
    const auto e = random_attention_shape(random, 120, 120);
    const AttentionShape shape{e.batch, e.rows, e.columns, e.query_heads, e.kv_heads, e.head_dim};
    const RawMask mask = random_family_mask(random, {e.batch, e.mask_heads, e.rows, e.columns});
    const DeviceMaskVectors vectors(mask.view());
    DeviceTensor<__nv_bfloat16> q(e.batch, e.rows, e.query_heads, e.head_dim),
        k(e.batch, e.columns, e.kv_heads, e.head_dim), v(e.batch, e.columns, e.kv_heads, e.head_dim, Layout::padded);
    fill_normal(q, 1, 0), fill_normal(k, 2), fill_normal(v, 3);
    const NaiveResult r = naive_attention<double, false, __nv_bfloat16>({shape, &q, &k, &v, nullptr, &vectors});
    for (std::int64_t b = 0; b < e.batch; ++b) {
      for (std::int64_t h = 0; h < e.query_heads; ++h) {
        for (std::int64_t i = 0; i < e.rows; ++i) {
          std::int64_t count = 0;
          for (std::int64_t j = 0; j < e.columns; ++j) {
            count += mask.visible(b, h / (e.query_heads / e.mask_heads), i, j) ? 1 : 0;
          }
          const double lse = r.lse[(b * e.query_heads + h) * e.rows + i];
          if (count == 0) {
            ASSERT_EQ(lse, -INFINITY);
            ASSERT_EQ(r.out[((b * e.rows + i) * e.query_heads + h) * e.head_dim], 0);
          } else {
            ASSERT_NEAR(lse, std::log(static_cast<double>(count)), 1e-12);
          }
        }
      }
    }
  }
}

/// The device tensor's elements in host memory, same strides.
template <typename T>
TensorView on_host(const DeviceTensor<T>& tensor, std::vector<T>& storage) {
  storage = const_cast<DeviceTensor<T>&>(tensor).buffer().download();
  return {storage.data(), dtype_of<T>, tensor.strides()};
}

void expect_same(const std::vector<double>& got, const std::vector<double>& want, double allowed,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const Deviation d = deviation(got, want);
  ASSERT_LE(d.error, allowed) << what << '[' << d.index << "] is " << d.got << ", not " << d.expected;
}

template <typename T>
void compare_with_cpu(int n) {
  Random random(100 + n);
  const auto e = random_attention_shape(random, 90, 90);
  const AttentionShape shape{e.batch, e.rows, e.columns, e.query_heads, e.kv_heads, e.head_dim};
  const RawMask raw = random_family_mask(random, {e.batch, e.mask_heads, e.rows, e.columns});
  const ColumnMask mask(raw.shape, raw.lts, raw.lte, raw.uts, raw.ute);
  const DeviceMaskVectors vectors(raw.view());
  const Layout layout = n % 2 == 0 ? Layout::bhsd : Layout::padded;
  DeviceTensor<T> q(e.batch, e.rows, e.query_heads, e.head_dim, layout), k(e.batch, e.columns, e.kv_heads, e.head_dim),
      v(e.batch, e.columns, e.kv_heads, e.head_dim, layout), dout(e.batch, e.rows, e.query_heads, e.head_dim);
  fill_normal(q, 1), fill_normal(k, 2), fill_normal(v, 3), fill_normal(dout, 4);
  const NaiveResult got = naive_attention<double, false, T>({shape, &q, &k, &v, &dout, &vectors});
  std::vector<T> hq, hk, hv, hdout;
  const cpu::reference::Problem problem{shape,
                                        &mask,
                                        on_host(q, hq),
                                        on_host(k, hk),
                                        on_host(v, hv),
                                        on_host(dout, hdout),
                                        1 / std::sqrt(static_cast<double>(e.head_dim))};
  const auto forward = cpu::reference::forward(problem, cpu::reference::Precision::float64, 2);
  const auto backward = cpu::reference::backward(problem, cpu::reference::Precision::float64, 2);
  const std::string what = "draw " + std::to_string(n) + ' ';
  ASSERT_NO_FATAL_FAILURE(expect_same(got.out, forward.out.values, 1e-11, what + "out"));
  ASSERT_NO_FATAL_FAILURE(expect_same(got.lse, forward.lse.values, 1e-11, what + "lse"));
  ASSERT_NO_FATAL_FAILURE(expect_same(got.dq, backward.dq.values, 1e-10, what + "dq"));
  ASSERT_NO_FATAL_FAILURE(expect_same(got.dk, backward.dk.values, 1e-10, what + "dk"));
  ASSERT_NO_FATAL_FAILURE(expect_same(got.dv, backward.dv.values, 1e-10, what + "dv"));
}

TEST(NaiveReference, equals_the_cpu_oracle_forward_and_backward) {
  for (int n = 0; n < 40; ++n) {
    if (n % 2 == 0) {
      ASSERT_NO_FATAL_FAILURE(compare_with_cpu<__nv_bfloat16>(n));
    } else {
      ASSERT_NO_FATAL_FAILURE(compare_with_cpu<__half>(n));
    }
  }
}

TEST(NaiveReference, a_wrong_cell_of_the_mask_is_more_than_the_tolerance_allows) {
  const AttentionShape shape{1, 300, 300, 1, 1, 64};
  RawMask mask({1, 1, 300, 300});
  for (std::int32_t j = 0; j < 300; ++j) mask.set(j, {300, 0, 0, j});
  const DeviceMaskVectors right(mask.view());
  DeviceTensor<__nv_bfloat16> q(1, 300, 1, 64), k(1, 300, 1, 64), v(1, 300, 1, 64), dout(1, 300, 1, 64);
  fill_normal(q, 1), fill_normal(k, 2), fill_normal(v, 3), fill_normal(dout, 4);
  NaiveInputs<__nv_bfloat16> in{shape, &q, &k, &v, &dout, &right};
  const NaiveResult exact = naive_attention<double, false>(in), naive = naive_attention<float, true>(in);
  const auto differs = [&](const char* name, std::vector<double> NaiveResult::*value, const NaiveResult& got) {
    return !compare(name, got.*value, exact.*value, naive.*value, DType::bf16).text.empty();
  };
  for (const std::int32_t wrong : {2, 150}) {  // row `wrong` does not see its own column
    mask.set(wrong, {300, 0, 0, wrong + 1});
    const DeviceMaskVectors vectors(mask.view());
    in.mask = &vectors;
    const NaiveResult got = naive_attention<double, false>(in);
    mask.set(wrong, {300, 0, 0, wrong});
    EXPECT_FALSE(compare("lse", got.lse, exact.lse, naive.lse, DType::f32).text.empty()) << wrong;
    if (wrong > 2) continue;  // one column of 151 is lost in the rounding of all others; that is what the LSE is for
    EXPECT_TRUE(differs("out", &NaiveResult::out, got));
    EXPECT_TRUE(differs("dq", &NaiveResult::dq, got));
    EXPECT_TRUE(differs("dk", &NaiveResult::dk, got));
    EXPECT_TRUE(differs("dv", &NaiveResult::dv, got));
  }
  EXPECT_FALSE(differs("out", &NaiveResult::out, exact));
}

}  // namespace
}  // namespace flashmask::device
