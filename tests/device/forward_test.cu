// The forward kernel against float64 on the device: shapes, masks, dtypes, layouts and the traps of long experience.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "device/compare.hpp"
#include "device/device_tensor.hpp"
#include "device/naive_reference.cuh"
#include "flashmask/builders.hpp"
#include "flashmask/sm90.hpp"

namespace flashmask::device {
namespace {

struct Problem {
  AttentionShape shape;
  ColumnMask mask;
  Layout layout = Layout::bshd;
  std::int32_t grid = 0;
  float spread = 1;  ///< standard deviation of q, k, v
};

struct Workspace {
  DeviceBuffer<std::uint8_t> bytes{static_cast<std::int64_t>(sm90::forward_workspace_bytes())};
  Workspace() { sm90::prepare_workspace(bytes.data(), nullptr); }
};

template <typename T>
struct Inputs {
  DeviceTensor<T> q, k, v;
  explicit Inputs(const Problem& p) {
    const AttentionShape& s = p.shape;
    q = DeviceTensor<T>(s.batch, s.rows, s.query_heads, s.head_dim, p.layout);
    k = DeviceTensor<T>(s.batch, s.columns, s.kv_heads, s.head_dim, p.layout);
    v = DeviceTensor<T>(s.batch, s.columns, s.kv_heads, s.head_dim, p.layout);
    fill_normal(q, 1, p.spread);
    fill_normal(k, 2, p.spread);
    fill_normal(v, 3, 1);
  }
};

struct Result {
  std::vector<double> out, lse;
};

template <typename T>
Result run(const Problem& p, const Inputs<T>& in, Workspace& workspace) {
  const AttentionShape& s = p.shape;
  DeviceTensor<T> out(s.batch, s.rows, s.query_heads, s.head_dim, p.layout);
  DeviceBuffer<float> lse(s.batch * s.query_heads * s.rows);
  const DeviceMaskVectors vectors(p.mask.view());
  sm90::DeviceMask mask(p.mask.shape(), sm90::forward_tile(s.head_dim));
  mask.refill(vectors.view(), nullptr);
  sm90::ForwardArguments a;
  a.shape = s, a.map = &mask.view(), a.grid = p.grid;
  a.q = in.q.view(), a.k = in.k.view(), a.v = in.v.view(), a.out = out.mutable_view();
  a.lse = lse.data(), a.workspace = workspace.bytes.data();
  sm90::forward(a);
  sm90::check_workspace(workspace.bytes.data(), nullptr);
  const std::vector<float> raw = lse.download();
  return {out.download(), {raw.begin(), raw.end()}};
}

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

ColumnMask named(const char* name, std::int64_t rows, std::int64_t columns = -1, std::int64_t batch = 1,
                 std::int64_t heads = 1) {
  masks::BuilderOptions options;
  options.rows = rows;
  if (columns >= 0) options.columns = columns;
  options.batch = batch, options.mask_heads = heads;
  return masks::build(name, options);
}

TEST(Forward, full_of_one_tile) {
  check<__nv_bfloat16>({{1, 192, 160, 1, 1, 128}, named("full", 192, 160)}, "full 192x160");
}
TEST(Forward, causal_of_two_tiles) {
  check<__nv_bfloat16>({{1, 256, 256, 1, 1, 128}, named("causal", 256)}, "causal 256");
}

TEST(Forward, twelve_masks) {
  for (const masks::BuilderName& builder : masks::builder_names().subspan(0, 12)) {
    for (const std::int64_t n : {1024, 1000}) {
      check<__nv_bfloat16>({{2, n, n, 4, 2, 128}, named(std::string(builder.name).c_str(), n)},
                           std::string(builder.name) + " " + std::to_string(n));
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

}  // namespace
}  // namespace flashmask::device
