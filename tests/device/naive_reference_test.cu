// The device oracle against what can be said without any oracle; against the CPU oracle cell by cell.
#include "device/naive_reference.cuh"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace flashmask::device
