// The numbered cases with known right answers, end to end through the forward kernel: with q = 0 the LSE must be the
// logarithm of the known number of visible columns, and with random inputs out and lse must agree with float64.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "device/forward_harness.cuh"

namespace flashmask::device {
namespace {

using Counts = std::vector<std::int64_t>;
using Column = std::function<HiddenRows(std::int32_t)>;

constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min(),
                       most = std::numeric_limits<std::int32_t>::max();

/// One matrix whose column j hides what `column` says.
ColumnMask mask_of(std::int32_t rows, std::int32_t columns, const Column& column) {
  ColumnMask mask({1, 1, rows, columns});
  for (std::int32_t j = 0; j < columns; ++j) mask.set(0, 0, j, column(j));
  return mask;
}

ColumnMask causal_with(std::int32_t n, const std::function<std::int32_t(std::int32_t)>& lts) {
  return mask_of(n, n, [&](std::int32_t j) { return HiddenRows{lts(j), n, 0, j}; });
}

/// The ends of consecutive documents, by column.
std::vector<std::int32_t> ends(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> end;
  for (const std::int32_t length : lengths) {
    const auto last = static_cast<std::int32_t>(end.size()) + length;
    end.insert(end.end(), static_cast<std::size_t>(length), last);
  }
  return end;
}

Counts all(std::int64_t rows, std::int64_t count) {
  return Counts(static_cast<std::size_t>(rows), count);
}
Counts one_to(std::int64_t rows) {
  Counts counts;
  for (std::int64_t i = 1; i <= rows; ++i) counts.push_back(i);
  return counts;
}

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

TEST(ForwardCases, A1_one_document_of_7_and_a_pad) {
  golden(mask_of(8, 8, [](std::int32_t j) { return HiddenRows{7, 8, 0, j < 7 ? 0 : 8}; }), {7, 7, 7, 7, 7, 7, 7, 0});
}
TEST(ForwardCases, A2_documents_4_and_3_and_pads) {
  const auto end = ends({4, 3});
  golden(mask_of(10, 10,
                 [&](std::int32_t j) {
                   return j < 7 ? HiddenRows{end[j], 10, 0, j < 4 ? 0 : 4} : HiddenRows{0, 10, 0, 0};
                 }),
         {4, 4, 4, 4, 3, 3, 3, 0, 0, 0});
}
TEST(ForwardCases, A3_padding_between_documents) {
  const std::vector<std::int32_t> ids{1, 1, 1, 0, 2, 2, 0, 0}, end{3, 3, 3, 0, 6, 6, 0, 0};
  golden(causal_with(8, [&](std::int32_t j) { return ids[j] == 0 ? 0 : end[j]; }), {1, 2, 3, 0, 1, 2, 0, 0});
}
TEST(ForwardCases, A4_everything_hidden) {
  golden(causal_with(128, [](std::int32_t) { return 0; }), all(128, 0));
}
TEST(ForwardCases, A5_nothing_hidden_then_everything) {
  golden(mask_of(300, 300, [](std::int32_t) { return HiddenRows{300, 300, 0, 0}; }), all(300, 300));
  golden(mask_of(300, 300, [](std::int32_t) { return HiddenRows{300, 300, 0, 300}; }), all(300, 0));
}
TEST(ForwardCases, A6_documents_with_a_ragged_dead_tail) {
  const auto end = ends({92, 63, 117, 28});
  Counts counts;
  for (const std::int64_t n : {92, 63, 117}) {
    const Counts part = one_to(n);
    counts.insert(counts.end(), part.begin(), part.end());
  }
  counts.resize(300, 0);
  golden(causal_with(300, [&](std::int32_t j) { return std::min(end[j], 272); }), counts);
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
TEST(ForwardCases, A9_one_row_sees_all) {
  golden(mask_of(1, 127, [](std::int32_t) { return HiddenRows{1, 1, 0, 0}; }), {127});
}
TEST(ForwardCases, A10_more_rows_than_columns) {
  Counts counts;
  for (std::int64_t i = 0; i < 128; ++i) counts.push_back(i);
  golden(mask_of(128, 127, [](std::int32_t j) { return HiddenRows{128, 128, 0, j + 1}; }), counts);
}
TEST(ForwardCases, A11_five_rows_three_columns) {
  golden(mask_of(5, 3, [](std::int32_t j) { return HiddenRows{5, 5, 0, j + 2}; }), {0, 0, 1, 2, 3});
}
TEST(ForwardCases, A12_few_rows_of_very_many_columns) {
  Counts counts;
  for (std::int64_t i = 0; i < 128; ++i) counts.push_back(33665 + i);
  golden(mask_of(128, 33792, [](std::int32_t j) { return HiddenRows{128, 128, 0, std::max(0, j - 33664)}; }), counts);
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
TEST(ForwardCases, A15_an_empty_run_inside_a_tile) {
  golden(mask_of(256, 256, [](std::int32_t) { return HiddenRows{200, 200, 0, 0}; }), all(256, 256));
}
TEST(ForwardCases, A16_an_inverted_run_is_empty) {
  golden(mask_of(512, 512, [](std::int32_t) { return HiddenRows{300, 100, 0, 0}; }), all(512, 512));
}
TEST(ForwardCases, A17_overlapping_and_touching_runs) {
  Counts counts = all(512, 512);
  std::fill(counts.begin() + 100, counts.begin() + 400, 0);
  golden(mask_of(512, 512, [](std::int32_t) { return HiddenRows{100, 300, 200, 400}; }), counts);
  golden(mask_of(512, 512, [](std::int32_t) { return HiddenRows{100, 250, 250, 400}; }), counts);
}
TEST(ForwardCases, A18_bounds_outside_the_rows) {
  golden(causal_with(64, [](std::int32_t) { return 65; }), one_to(64));
  golden(mask_of(64, 64, [](std::int32_t) { return HiddenRows{64, 64, 0, -3}; }), all(64, 64));
  golden(mask_of(64, 64, [](std::int32_t j) { return HiddenRows{most, most, least, j}; }), one_to(64));
  golden(mask_of(64, 64, [](std::int32_t) { return HiddenRows{64, most, least, least}; }), all(64, 64));
}
TEST(ForwardCases, A19_start_at_before_and_beyond_the_diagonal) {
  golden(causal_with(256, [](std::int32_t j) { return j + 1; }), all(256, 1));
  golden(causal_with(256, [](std::int32_t j) { return j; }), all(256, 0));
  golden(causal_with(256, [](std::int32_t j) { return std::min(j + 300, 256); }), one_to(256));
}
TEST(ForwardCases, A20_global_and_window) {
  golden(masks::global_sliding_window({1, 1, 64, 64}, 16, 100), all(64, 64));
  golden(masks::global_sliding_window({1, 1, 64, 64}, 64, 0), all(64, 64));
  golden(masks::global_sliding_window({1, 1, 64, 64}, 0, 0), all(64, 1));
}
TEST(ForwardCases, A21_ragged_everything) {
  const ColumnMask mask = mask_of(239, 203, [](std::int32_t j) { return HiddenRows{239, 239, 0, j + 36}; });
  const AttentionShape shape{1, 239, 203, 6, 2, 80};
  probe(shape, mask.view(),
        [](std::int64_t, std::int64_t, std::int64_t i) { return std::max<std::int64_t>(0, i - 35); });
  oracle(shape, mask.view());
}
TEST(ForwardCases, A24_columns_around_powers_of_two) {
  for (const std::int32_t columns : {16383, 16384, 16385, 16512, 16513, 32769}) {
    const ColumnMask mask = mask_of(64, columns, [&](std::int32_t j) {
      return HiddenRows{64, 64, 0, std::max(0, j - columns + 64)};
    });
    Counts counts;
    for (std::int64_t i = 0; i < 64; ++i) counts.push_back(columns - 63 + i);
    ASSERT_NO_FATAL_FAILURE(golden(mask, counts)) << columns;
  }
}
TEST(ForwardCases, A25_windows_without_bound) {
  using masks::WindowSide;
  const MaskShape shape{1, 1, 200, 200};
  golden(masks::window(shape, WindowSide::unbounded(), WindowSide::unbounded()), all(200, 200));
  golden(masks::window(shape, WindowSide::unbounded(), WindowSide::keys(0)), one_to(200));
  golden(masks::window(shape, WindowSide::keys(0), WindowSide::keys(0)), all(200, 1));
}
TEST(ForwardCases, A26_as_many_heads_as_rows_in_every_layout) {
  const ColumnMask mask = causal_with(64, [](std::int32_t) { return 64; });
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::padded})
    oracle({1, 64, 64, 64, 64, 64}, mask.view(), layout);
}
TEST(ForwardCases, A27_prefix_tree) {
  const std::vector<std::int32_t> lts{10, 10, 6, 5, 5, 6, 10, 8, 10, 10};
  golden(causal_with(10, [&](std::int32_t j) { return lts[j]; }), {1, 2, 3, 4, 5, 4, 3, 4, 4, 5});
}
TEST(ForwardCases, A28_share_question) {
  const std::vector<std::int32_t> lts{7, 7, 4, 4, 7, 7, 7, 10, 9, 10};
  golden(causal_with(10, [&](std::int32_t j) { return lts[j]; }), {1, 2, 3, 4, 3, 4, 5, 1, 2, 2});
}
TEST(ForwardCases, A29_prefix_lm_documents) {
  const std::vector<std::int32_t> ute{0, 0, 2, 3, 4, 5, 6, 7};
  golden(mask_of(8, 8,
                 [&](std::int32_t j) {
                   return HiddenRows{j < 5 ? 5 : 8, 8, 0, ute[j]};
                 }),
         {2, 2, 3, 4, 5, 1, 2, 3});
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
