#include <gtest/gtest.h>

#include <numeric>

#include "flashmask/builders.hpp"
#include "flashmask/error.hpp"

namespace flashmask::masks {
namespace {

/// Counts by the dense matrix, which shares no code with the vectors' arithmetic.
std::int64_t dense_count(const ColumnMask& mask) {
  std::int64_t cells = 0;
  for (std::int64_t b = 0; b < mask.shape().batch; ++b) {
    for (std::int64_t h = 0; h < mask.shape().heads; ++h) {
      const auto dense = mask.dense(b, h);
      cells += std::accumulate(dense.begin(), dense.end(), std::int64_t{0});
    }
  }
  return cells;
}

TEST(Builders, closed_form_equals_the_dense_count_at_many_sizes) {
  for (const BuilderName& builder : builder_names()) {
    for (const std::int64_t n : {0, 1, 2, 3, 7, 8, 16, 17, 40, 97, 128, 200}) {
      BuilderOptions options{.rows = n, .batch = 2, .mask_heads = 2};
      const ColumnMask mask = build(builder.name, options);
      EXPECT_TRUE(mask.is_canonical()) << builder.name;
      const std::int64_t counted = dense_count(mask);
      EXPECT_EQ(mask.visible_cells(), counted) << builder.name << " n=" << n;
      const auto formula = closed_form_visible_cells(builder.name, options);
      const bool random = builder.name == "random_eviction" || builder.name == "hash_sparse";
      ASSERT_EQ(formula.has_value(), !random) << builder.name;
      if (formula) {
        EXPECT_EQ(*formula, counted) << builder.name << " n=" << n;
      }
    }
  }
}

TEST(Builders, an_unknown_name_is_refused_with_the_known_ones) {
  try {
    build("casual", {.rows = 4});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("\"casual\""), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("causal_document"), std::string::npos);
  }
}

}  // namespace
}  // namespace flashmask::masks
