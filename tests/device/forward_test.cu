// The forward kernel against float64 on the device: shapes, masks, dtypes, layouts and the traps of long experience.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "device/forward_problem.cuh"

namespace flashmask::device {
namespace {

template <typename T>
void check(const Problem& p, const std::string& name) {
  SCOPED_TRACE(name);
  const Inputs<T> in(p);
  // The oracle wants a mask row for every batch row.
  const std::vector<ColumnMask> copies(static_cast<std::size_t>(p.shape.batch / p.mask.shape().batch), p.mask);
  const DeviceMaskVectors vectors(masks::stack_batch(copies).view());
  NaiveInputs<T> naive{p.shape, &in.q, &in.k, &in.v, nullptr, &vectors};
  const NaiveResult exact = naive_attention<double, false>(naive);
  const NaiveResult rounded = naive_attention<float, true>(naive);
  Workspace workspace;
  const Result got = run<T>(p, in, workspace);
  const Comparison out = compare("out", got.out, exact.out, rounded.out, dtype_of<T>);
  const Comparison lse = compare("lse", got.lse, exact.lse, rounded.lse, DType::f32);
  EXPECT_TRUE(out.text.empty()) << out.text;
  EXPECT_TRUE(lse.text.empty()) << lse.text;
  std::printf("%-40s out %.2e of %.2e, lse %.2e of %.2e\n", name.c_str(), out.worst, out.allowed, lse.worst,
              lse.allowed);
}

TEST(Forward, full_of_one_tile) {
  check<__nv_bfloat16>({{1, 192, 160, 1, 1, 128}, named("full", 192, 160)}, "full 192x160");
}
TEST(Forward, causal_of_two_tiles) {
  check<__nv_bfloat16>({{1, 256, 256, 1, 1, 128}, named("causal", 256)}, "causal 256");
}

/// With the two above, what the sanitizers run: every role, both sources of visibility, skipped and empty tiles.
TEST(Forward, small_masks_with_and_without_bitmaps) {
  for (const bool bitmaps : {false, true}) {
    Problem p{{1, 500, 500, 2, 1, 128}, named("share_question", 500)};
    p.bitmaps = bitmaps, p.grid = 2;
    check<__nv_bfloat16>(p, bitmaps ? "share_question 500 bitmaps" : "share_question 500 generated");
  }
  const masks::Packing padded({masks::Document{70}});
  check<__nv_bfloat16>({{1, 450, 450, 1, 1, 64}, masks::causal_document({1, 1, 450, 450}, padded)}, "mostly dead rows");
}

TEST(Forward, twelve_masks) {
  for (const masks::BuilderName& builder : masks::builder_names().subspan(0, 12)) {
    for (const std::int64_t n : {1024, 1000}) {
      check<__nv_bfloat16>({{2, n, n, 4, 2, 128}, named(std::string(builder.name).c_str(), n)},
                           std::string(builder.name) + " " + std::to_string(n));
    }
    Problem p{{1, 700, 700, 2, 1, 128}, named(std::string(builder.name).c_str(), 700)};
    p.bitmaps = true;
    check<__nv_bfloat16>(p, std::string(builder.name) + " 700 bitmaps");
  }
}

TEST(Forward, maps_too_small_for_bitmaps_or_runs_stay_right) {
  for (const std::int32_t bitmaps : {0, 7, 1000}) {
    for (const std::int32_t runs : {0, 9, 1000}) {
      Problem p{{2, 900, 900, 2, 2, 128}, named("share_question", 900, 900, 2)};
      p.capacity = sm90::MapCapacity{.row_runs = runs, .column_runs = 1000, .bitmaps = bitmaps};
      check<__nv_bfloat16>(p, std::to_string(bitmaps) + " bitmaps, " + std::to_string(runs) + " runs");
    }
  }
}

TEST(Forward, narrow_tiles) {
  for (const char* name : {"full", "causal", "share_question", "random_eviction"}) {
    for (const bool bitmaps : {false, true}) {
      Problem p{{1, 1000, 1000, 2, 1, 128}, named(name, 1000)};
      p.tile = 1, p.bitmaps = bitmaps;
      check<__nv_bfloat16>(p, std::string("192x64 ") + name);
      check<__half>(p, std::string("192x64 fp16 ") + name);
    }
  }
}

TEST(Forward, ragged_sizes) {
  for (const std::int64_t rows : {1, 63, 64, 65, 191, 193, 239}) {
    for (const std::int64_t columns : {1, 79, 80, 81, 127, 203, 400}) {
      check<__nv_bfloat16>({{1, rows, columns, 2, 1, 128}, named("full", rows, columns)},
                           "full " + std::to_string(rows) + "x" + std::to_string(columns));
      check<__nv_bfloat16>({{1, rows, columns, 2, 1, 128}, named("causal", rows, columns)},
                           "causal " + std::to_string(rows) + "x" + std::to_string(columns));
    }
  }
}

TEST(Forward, head_dims_and_dtypes) {
  for (const std::int64_t d : {32, 64, 80, 96, 112, 128}) {
    check<__nv_bfloat16>({{1, 500, 500, 4, 2, d}, named("causal_document", 500)}, "bf16 d=" + std::to_string(d));
    check<__half>({{1, 500, 500, 4, 2, d}, named("share_question", 500)}, "fp16 d=" + std::to_string(d));
  }
}

TEST(Forward, layouts) {
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::padded}) {
    check<__nv_bfloat16>({{2, 320, 320, 6, 2, 128}, named("causal", 320, 320, 2), layout}, "layout");
  }
}

TEST(Forward, mask_heads_and_batches) {
  for (const std::int64_t heads : {1, 2, 8}) {
    for (const std::int64_t batch : {1, 3}) {
      check<__nv_bfloat16>({{3, 400, 400, 8, 2, 128}, named("random_eviction", 400, 400, batch, heads)},
                           "mask heads " + std::to_string(heads) + " batch " + std::to_string(batch));
    }
  }
}

TEST(Forward, large_scores_are_rescaled) {
  check<__nv_bfloat16>({{1, 600, 600, 2, 2, 128}, named("full", 600), Layout::bshd, 0, 4}, "spread 4");
}

TEST(Forward, few_ctas_take_all_tiles) {
  check<__nv_bfloat16>({{2, 900, 900, 4, 2, 128}, named("causal_document", 900), Layout::bshd, 3}, "grid 3");
}

/// Q = 0: every visible column counts one, so LSE is the logarithm of their number.
TEST(Forward, count_probe) {
  for (const masks::BuilderName& builder : masks::builder_names().subspan(0, 12)) {
    const std::int64_t n = 2000;
    Problem p{{1, n, n, 1, 1, 128}, named(std::string(builder.name).c_str(), n)};
    Inputs<__nv_bfloat16> in(p);
    cudaMemset(in.q.data(), 0, n * 128 * 2);
    Workspace workspace;
    const Result got = run<__nv_bfloat16>(p, in, workspace);
    const std::vector<std::int64_t> counts = p.mask.row_counts(0, 0);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) {
        ASSERT_EQ(got.lse[i], -INFINITY) << builder.name << " row " << i;
      } else {
        ASSERT_EQ(std::llround(std::exp(got.lse[i])), counts[i]) << builder.name << " row " << i;
      }
    }
  }
}

TEST(Forward, no_columns_give_zero_and_minus_infinity) {
  check<__nv_bfloat16>({{1, 100, 0, 2, 1, 128}, named("full", 100, 0)}, "no columns");
}

}  // namespace
}  // namespace flashmask::device
