// The forward kernel against float64 on the device: shapes, masks, dtypes, layouts and the traps of long experience.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "device/forward_harness.cuh"

namespace flashmask::device {
namespace {

class Forward : public ::testing::Test {
 protected:
  /// Against the oracle, with bit patterns of partial blocks in the map and with the mask generators instead.
  template <typename T>
  void check(const AttentionShape& shape, const ColumnMask& mask, const std::string& name, ForwardSetup setup = {}) {
    for (const bool bitmaps : {true, false}) {
      setup.bitmaps = bitmaps;
      ForwardCase<T> c(shape, mask.view(), 1, setup);
      c.run(workspace_);
      workspace_.check();
      c.expect_right(errors_, name + (bitmaps ? ", bitmaps" : ", generated"));
    }
  }

 private:
  ForwardWorkspace workspace_;
  WorstErrors errors_;
};

TEST_F(Forward, full_of_one_tile) {
  check<__nv_bfloat16>({1, 192, 160, 1, 1, 128}, named("full", 192, 160), "full 192x160");
}
TEST_F(Forward, causal_of_two_tiles) {
  check<__nv_bfloat16>({1, 256, 256, 1, 1, 128}, named("causal", 256), "causal 256");
}

/// With the two above, what the sanitizers run: every role, both sources of visibility, skipped and empty tiles.
TEST_F(Forward, small_masks) {
  check<__nv_bfloat16>({1, 500, 500, 2, 1, 128}, named("share_question", 500), "share_question 500", {.grid = 2});
  check<__nv_bfloat16>({1, 100, 200, 8, 1, 128}, named("share_question", 100, 200), "packed 100x200",
                       {.grid = 2, .tile = packed_tile(128)});
  const masks::Packing padded({masks::Document{70}});
  check<__nv_bfloat16>({1, 450, 450, 1, 1, 64}, masks::causal_document({1, 1, 450, 450}, padded), "mostly dead rows");
}

TEST_F(Forward, twelve_masks) {
  for (const masks::BuilderName& builder : masks::builder_names().subspan(0, 12)) {
    const std::string name(builder.name);
    for (const std::int64_t n : {1024, 1000}) {
      check<__nv_bfloat16>({2, n, n, 4, 2, 128}, named(name, n), name + " " + std::to_string(n));
    }
  }
}

TEST_F(Forward, maps_too_small_for_bitmaps_or_runs_stay_right) {
  for (const std::int32_t bitmaps : {0, 7, 1000}) {
    for (const std::int32_t runs : {0, 9, 1000}) {
      ForwardSetup setup;
      setup.capacity = sm90::MapCapacity{.row_runs = runs, .column_runs = 1000, .bitmaps = bitmaps};
      check<__nv_bfloat16>({2, 900, 900, 2, 2, 128}, named("share_question", 900, 900, 2),
                           std::to_string(bitmaps) + " bitmaps, " + std::to_string(runs) + " runs", setup);
    }
  }
}

TEST_F(Forward, narrow_tiles) {
  const TileShape narrow{192, 64};
  for (const char* name : {"full", "causal", "share_question", "random_eviction"}) {
    check<__nv_bfloat16>({1, 1000, 1000, 2, 1, 128}, named(name, 1000), std::string("192x64 ") + name,
                         {.tile = narrow});
    check<__half>({1, 1000, 1000, 2, 1, 128}, named(name, 1000), std::string("192x64 fp16 ") + name, {.tile = narrow});
  }
}

TEST_F(Forward, packed_heads_on_the_twelve_masks) {
  for (const masks::BuilderName& builder : masks::builder_names().subspan(0, 12)) {
    const std::string name(builder.name);
    check<__nv_bfloat16>({1, 1000, 1000, 16, 1, 128}, named(name, 1000), "packed " + name, {.tile = packed_tile(128)});
    check<__half>({2, 400, 400, 16, 2, 64}, named(name, 400, 400, 2, 2), "packed fp16, mask heads and batches, " + name,
                  {.tile = packed_tile(64)});
  }
}

TEST_F(Forward, packed_heads_of_ragged_sizes) {
  for (const std::int64_t rows : {1, 23, 24, 25, 193}) {
    for (const std::int64_t columns : {1, 15, 16, 81, 203}) {
      for (const char* name : {"full", "causal"}) {
        check<__nv_bfloat16>({1, rows, columns, 16, 2, 128}, named(name, rows, columns),
                             "packed " + (name + (" " + std::to_string(rows))) + "x" + std::to_string(columns),
                             {.tile = packed_tile(128)});
      }
    }
  }
}

TEST_F(Forward, packed_heads_of_every_layout_head_dim_and_dtype) {
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::padded}) {
    for (const std::int64_t d : {32, 64, 80, 112, 128}) {
      const std::string what = "packed d=" + std::to_string(d);
      const ForwardSetup setup{.layout = layout, .grid = 5, .tile = packed_tile(d)};
      check<__nv_bfloat16>({2, 130, 170, 24, 1, d}, named("causal_document", 130, 170, 2), what, setup);
      check<__half>({2, 130, 170, 24, 1, d}, named("random_eviction", 130, 170), what + " fp16", setup);
    }
  }
}

TEST_F(Forward, packed_maps_too_small_for_bitmaps_or_runs_and_large_scores_stay_right) {
  for (const std::int32_t bitmaps : {0, 7}) {
    for (const std::int32_t runs : {0, 50}) {
      ForwardSetup setup{.tile = packed_tile(128)};
      setup.capacity = sm90::MapCapacity{.row_runs = runs, .column_runs = 1000, .bitmaps = bitmaps};
      check<__nv_bfloat16>({2, 400, 400, 16, 2, 128}, named("share_question", 400, 400, 2),
                           "packed, " + std::to_string(bitmaps) + " bitmaps, " + std::to_string(runs) + " runs", setup);
    }
  }
  check<__nv_bfloat16>({1, 600, 600, 8, 1, 128}, named("full", 600), "packed, spread 4",
                       {.spread = 4, .tile = packed_tile(128)});
  check<__nv_bfloat16>({1, 100, 0, 8, 1, 128}, named("full", 100, 0), "packed, no columns", {.tile = packed_tile(128)});
}

TEST_F(Forward, ragged_sizes) {
  for (const std::int64_t rows : {1, 63, 64, 65, 191, 193, 239}) {
    for (const std::int64_t columns : {1, 79, 80, 81, 127, 203, 400}) {
      for (const char* name : {"full", "causal"}) {
        check<__nv_bfloat16>({1, rows, columns, 2, 1, 128}, named(name, rows, columns),
                             name + (" " + std::to_string(rows)) + "x" + std::to_string(columns));
      }
    }
  }
}

TEST_F(Forward, head_dims_and_dtypes) {
  for (const std::int64_t d : {32, 64, 80, 96, 112, 128}) {
    check<__nv_bfloat16>({1, 500, 500, 4, 2, d}, named("causal_document", 500), "bf16 d=" + std::to_string(d));
    check<__half>({1, 500, 500, 4, 2, d}, named("share_question", 500), "fp16 d=" + std::to_string(d));
  }
}

TEST_F(Forward, layouts) {
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::padded}) {
    check<__nv_bfloat16>({2, 320, 320, 6, 2, 128}, named("causal", 320, 320, 2), "layout", {.layout = layout});
  }
}

TEST_F(Forward, mask_heads_and_batches) {
  for (const std::int64_t heads : {1, 2, 8}) {
    for (const std::int64_t batch : {1, 3}) {
      check<__nv_bfloat16>({3, 400, 400, 8, 2, 128}, named("random_eviction", 400, 400, batch, heads),
                           "mask heads " + std::to_string(heads) + " batch " + std::to_string(batch));
    }
  }
}

TEST_F(Forward, large_scores_are_rescaled) {
  check<__nv_bfloat16>({1, 600, 600, 2, 2, 128}, named("full", 600), "spread 4", {.spread = 4});
}

TEST_F(Forward, few_ctas_take_all_tiles) {
  check<__nv_bfloat16>({2, 900, 900, 4, 2, 128}, named("causal_document", 900), "grid 3", {.grid = 3});
}

TEST_F(Forward, no_columns_give_zero_and_minus_infinity) {
  check<__nv_bfloat16>({1, 100, 0, 2, 1, 128}, named("full", 100, 0), "no columns");
}

}  // namespace
}  // namespace flashmask::device
