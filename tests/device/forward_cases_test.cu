// The numbered cases with known right answers, end to end through the forward kernel: with q = 0 the LSE must be the
// logarithm of the known number of visible columns, and with random inputs out and lse must agree with float64.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>

#include "device/forward_harness.cuh"
#include "device/numbered_cases.hpp"

namespace flashmask::device {
namespace {

void probe(const AttentionShape& shape, const MaskView& mask,
           const std::function<std::int64_t(std::int64_t, std::int64_t, std::int64_t)>& count,
           std::optional<TileShape> tile = {}) {
  const ForwardWorkspace workspace;
  ForwardCase<__nv_bfloat16> c(shape, mask, 1, {.spread = 0, .tile = tile});
  c.run(workspace);
  workspace.check();
  const std::vector<double> lse = c.lse_values();
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.query_heads; ++h) {
      for (std::int64_t i = 0; i < shape.rows; ++i) {
        const std::int64_t want = count(b, h, i);
        const double got = lse[(b * shape.query_heads + h) * shape.rows + i];
        if (want == 0) {
          ASSERT_EQ(got, -INFINITY) << "row " << i;
        } else {
          ASSERT_NEAR(got, std::log(static_cast<double>(want)), 8e-6) << "batch " << b << " head " << h << " row " << i;
        }
      }
    }
  }
}

void oracle(const AttentionShape& shape, const MaskView& mask, Layout layout = Layout::bshd,
            std::optional<TileShape> tile = {}) {
  const ForwardWorkspace workspace;
  WorstErrors errors;
  ForwardCase<__nv_bfloat16> c(shape, mask, 2, {.layout = layout, .tile = tile});
  c.run(workspace);
  workspace.check();
  ASSERT_TRUE(c.expect_right(errors, "bf16"));
}

/// Count probe and oracle of a one-matrix mask, at both head dims, plain and with packed heads.
void golden(const ColumnMask& mask, const Counts& counts) {
  const auto count = [&](std::int64_t, std::int64_t, std::int64_t i) { return counts[i]; };
  for (const std::int64_t d : {64, 128}) {
    const AttentionShape shape{1, mask.shape().rows, mask.shape().columns, 2, 1, d};
    ASSERT_NO_FATAL_FAILURE(probe(shape, mask.view(), count));
    ASSERT_NO_FATAL_FAILURE(oracle(shape, mask.view()));
    const AttentionShape packable{1, mask.shape().rows, mask.shape().columns, 8, 1, d};
    ASSERT_NO_FATAL_FAILURE(probe(packable, mask.view(), count, packed_tile(d)));
    ASSERT_NO_FATAL_FAILURE(oracle(packable, mask.view(), Layout::bshd, packed_tile(d)));
  }
}

TEST(ForwardCases, one_matrix_whose_counts_are_known) {
  for (const NumberedCase& c : numbered_cases()) ASSERT_NO_FATAL_FAILURE(golden(c.mask, c.counts)) << c.name;
}
TEST(ForwardCases, A8_documents_of_one_token_give_the_values_themselves_cases_with_long_rows) {
  for (const std::int64_t n : {257, 70000}) {
    const ColumnMask mask = causal_with(static_cast<std::int32_t>(n), [](std::int32_t j) { return j + 1; });
    const ForwardWorkspace workspace;
    ForwardCase<__nv_bfloat16> c({1, n, n, 1, 1, 64}, mask.view(), 3);
    c.run(workspace);
    workspace.check();
    ASSERT_EQ(c.out.download(), c.v.download());
    const std::vector<double> q = c.q.download(), k = c.k.download(), lse = c.lse_values();
    for (std::int64_t i = 0; i < n; ++i) {
      double score = 0;
      for (int d = 0; d < 64; ++d) score += q[i * 64 + d] * k[i * 64 + d];
      ASSERT_NEAR(lse[i], score / 8, 2e-5) << "row " << i;
    }
  }
}
TEST(ForwardCases, A13_per_head_mask_reaches_the_query_heads_of_its_kv_head) {
  ColumnMask mask({1, 2, 256, 256});
  for (std::int32_t j = 0; j < 256; ++j) mask.set(0, 0, j, {j + 1, 256, 0, j}), mask.set(0, 1, j, {256, 256, 0, j});
  const AttentionShape shape{1, 256, 256, 4, 2, 128};
  probe(shape, mask.view(), [](std::int64_t, std::int64_t h, std::int64_t i) { return h < 2 ? 1 : i + 1; });
  oracle(shape, mask.view());
  const AttentionShape packable{1, 256, 256, 32, 2, 128};
  const auto count = [](std::int64_t, std::int64_t h, std::int64_t i) { return h < 16 ? 1 : i + 1; };
  probe(packable, mask.view(), count, packed_tile(128));
  oracle(packable, mask.view(), Layout::bshd, packed_tile(128));
}
TEST(ForwardCases, A14_batch_rows_keep_their_own_masks) {
  ColumnMask mask({2, 1, 256, 256});
  for (std::int32_t j = 0; j < 256; ++j)
    mask.set(0, 0, j, {256, 256, 0, j}), mask.set(1, 0, j, {j < 128 ? 128 : 256, 256, 0, j});
  const AttentionShape shape{2, 256, 256, 2, 2, 64};
  const auto count = [](std::int64_t b, std::int64_t, std::int64_t i) { return b == 1 && i >= 128 ? i - 127 : i + 1; };
  probe(shape, mask.view(), count);
  oracle(shape, mask.view());
  const AttentionShape packable{2, 256, 256, 16, 2, 64};
  probe(packable, mask.view(), count, packed_tile(64));
  oracle(packable, mask.view(), Layout::padded, packed_tile(64));
}
TEST(ForwardCases, A21_ragged_everything) {
  const ColumnMask mask = mask_of(239, 203, [](std::int32_t j) { return HiddenRows{239, 239, 0, j + 36}; });
  const AttentionShape shape{1, 239, 203, 6, 2, 80};
  probe(shape, mask.view(),
        [](std::int64_t, std::int64_t, std::int64_t i) { return std::max<std::int64_t>(0, i - 35); });
  oracle(shape, mask.view());
}
TEST(ForwardCases, A26_as_many_heads_as_rows_in_every_layout) {
  const ColumnMask mask = causal_with(64, [](std::int32_t) { return 64; });
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::padded})
    oracle({1, 64, 64, 64, 64, 64}, mask.view(), layout);
}
TEST(ForwardCases, A31_two_streams_and_other_shapes_on_one_workspace_equal_serial_calls) {
  const ColumnMask small = causal_with(500, [](std::int32_t) { return 300; }),
                   large = causal_with(1500, [](std::int32_t j) { return j + 200; });
  const ForwardWorkspace first, second;
  ForwardCase<__nv_bfloat16> a({1, 500, 500, 4, 2, 128}, small.view(), 1),
      b({1, 1500, 1500, 2, 1, 64}, large.view(), 2);
  a.run(first), b.run(first);
  const auto a_out = a.out.download(), b_out = b.out.download();
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams)
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  a.out.poison(), b.out.poison();
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (int n = 0; n < 50; ++n) {
    sm90::forward(a.arguments(first, streams[0])), sm90::forward(b.arguments(second, streams[1]));
  }
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  first.check(), second.check();
  EXPECT_EQ(a.out.download(), a_out);
  EXPECT_EQ(b.out.download(), b_out);
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
}
TEST(ForwardCases, A32_a_captured_call_replays_on_a_refilled_mask) {
  const ColumnMask one = causal_with(16, [](std::int32_t) { return 16; });
  const auto end = ends({5, 5, 6});
  const ColumnMask three = causal_with(16, [&](std::int32_t j) { return end[j]; });
  const ForwardWorkspace workspace;
  ForwardCase<__nv_bfloat16> c({1, 16, 16, 2, 1, 128}, one.view(), 1);
  c.run(workspace);  // kernels are loaded before the capture
  const auto eager_one = c.out.download();
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  c.run(workspace, stream);
  require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  require(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  const auto replay = [&] {
    c.out.poison();
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    require(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return c.out.download();
  };
  EXPECT_EQ(replay(), eager_one);
  const std::vector<std::int32_t> lts(three.lts().begin(), three.lts().end());
  c.vectors.lts.upload(lts), c.oracle_vectors.lts.upload(lts);
  const auto replayed = replay();
  c.out.poison();
  c.run(workspace);
  EXPECT_EQ(c.out.download(), replayed);
  WorstErrors errors;
  EXPECT_TRUE(c.expect_right(errors, "three documents"));
  EXPECT_NE(replayed, eager_one);
  cudaGraphExecDestroy(executable), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace flashmask::device
