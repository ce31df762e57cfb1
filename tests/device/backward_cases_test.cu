// The numbered cases end to end through forward and backward: gradients agree with float64, those of rows that see
// nothing and of columns that nobody sees are exactly 0, with one CTA and with two a work block, and deterministic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "device/backward_harness.cuh"
#include "device/numbered_cases.hpp"

namespace flashmask::device {
namespace {

using Case = BackwardCase<__nv_bfloat16>;

/// How a call is made: deterministic or not, and one or two CTAs a work block.
constexpr std::pair<bool, std::int32_t> modes[] = {{false, 128}, {false, 256}, {true, 128}};

/// The gradients of position `i` of [batch][position][head][dim], if exactly one batch row is there, are all 0.
void expect_zero(const DeviceTensor<__nv_bfloat16>& gradient, std::int64_t i, const char* name) {
  const std::vector<double> values = gradient.download();
  const std::int64_t width = gradient.extents()[2] * gradient.extents()[3];
  for (std::int64_t n = i * width; n < (i + 1) * width; ++n) ASSERT_EQ(values[n], 0.0) << name << " of position " << i;
}

/// `counts`: columns that each row sees, where that is known.
void check(const AttentionShape& shape, const ColumnMask& mask, const std::string& name, Layout layout = Layout::bshd,
           const Counts& counts = {}) {
  static const ForwardWorkspace workspace;
  for (const auto& [deterministic, columns] : modes) {
    WorstErrors errors;
    Case c(shape, mask.view(), 2, deterministic, layout, 1, {64, columns});
    c.poison();
    c.run(workspace);
    const std::string how = name + (deterministic ? ", deterministic, " : ", ") + std::to_string(columns) + " columns";
    ASSERT_TRUE(c.expect_right(errors, how));
    if (shape.batch != 1 || mask.shape().heads != 1) continue;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(counts.size()); ++i) {
      if (counts[i] == 0) ASSERT_NO_FATAL_FAILURE(expect_zero(c.dq, i, "dq")) << how;
    }
    for (std::int64_t j = 0; j < shape.columns && shape.rows * shape.columns <= 1 << 18; ++j) {
      bool seen = false;
      for (std::int64_t i = 0; i < shape.rows && !seen; ++i) seen = mask.visible(0, 0, i, j);
      if (seen) continue;
      ASSERT_NO_FATAL_FAILURE(expect_zero(c.dk, j, "dk")) << how;
      ASSERT_NO_FATAL_FAILURE(expect_zero(c.dv, j, "dv")) << how;
    }
  }
}

TEST(BackwardCases, one_matrix_whose_counts_are_known) {
  for (const NumberedCase& n : numbered_cases()) {
    for (const std::int64_t d : {64, 128}) {
      ASSERT_NO_FATAL_FAILURE(
          check({1, n.mask.shape().rows, n.mask.shape().columns, 2, 1, d}, n.mask, n.name, Layout::bshd, n.counts));
    }
  }
}
TEST(BackwardCases, A7_an_empty_document_changes_no_bit) {
  const ForwardWorkspace workspace;
  const std::vector<std::int64_t> with{5, 0, 3}, without{5, 3};
  const ColumnMask a = masks::causal_document({1, 1, 8, 8}, masks::documents_of(with)),
                   b = masks::causal_document({1, 1, 8, 8}, masks::documents_of(without));
  Case first({1, 8, 8, 2, 1, 128}, a.view(), 7, true), second({1, 8, 8, 2, 1, 128}, b.view(), 7, true);
  first.run(workspace), second.run(workspace);
  EXPECT_TRUE(bytes_of(first.dq) == bytes_of(second.dq) && bytes_of(first.dk) == bytes_of(second.dk) &&
              bytes_of(first.dv) == bytes_of(second.dv));
}
TEST(BackwardCases, A8_documents_of_one_token_hand_dout_on_cases_with_long_rows) {
  const ForwardWorkspace workspace;
  for (const std::int64_t n : {257, 70000}) {
    const ColumnMask mask = causal_with(static_cast<std::int32_t>(n), [](std::int32_t j) { return j + 1; });
    for (const auto& [deterministic, columns] : modes) {
      Case c({1, n, n, 1, 1, 64}, mask.view(), 3, deterministic, Layout::bshd, 1, {64, columns});
      c.poison();
      c.run(workspace);
      ASSERT_EQ(c.dv.download(), c.dout.download()) << n << " rows";
      for (const auto* gradient : {&c.dq, &c.dk}) {  // dO.V - dO.O: two float32 sums of the same 64 terms
        for (const double x : gradient->download()) ASSERT_LT(std::abs(x), 1e-4) << n << " rows";
      }
    }
  }
}
TEST(BackwardCases, A13_a_per_head_mask_reaches_the_query_heads_of_its_kv_head) {
  ColumnMask mask({1, 2, 256, 256});
  for (std::int32_t j = 0; j < 256; ++j) mask.set(0, 0, j, {j + 1, 256, 0, j}), mask.set(0, 1, j, {256, 256, 0, j});
  check({1, 256, 256, 4, 2, 128}, mask, "A13");
  check({1, 256, 256, 4, 2, 64}, mask, "A13");
}
TEST(BackwardCases, A14_batch_rows_keep_their_own_masks) {
  ColumnMask mask({2, 1, 256, 256});
  for (std::int32_t j = 0; j < 256; ++j)
    mask.set(0, 0, j, {256, 256, 0, j}), mask.set(1, 0, j, {j < 128 ? 128 : 256, 256, 0, j});
  check({2, 256, 256, 2, 2, 64}, mask, "A14");
  check({2, 256, 256, 2, 2, 128}, mask, "A14");
}
TEST(BackwardCases, A21_ragged_everything) {
  Counts counts;
  for (std::int64_t i = 0; i < 239; ++i) counts.push_back(std::max<std::int64_t>(0, i - 35));
  const ColumnMask mask = mask_of(239, 203, [](std::int32_t j) { return HiddenRows{239, 239, 0, j + 36}; });
  check({1, 239, 203, 6, 2, 80}, mask, "A21", Layout::bshd, counts);
}
TEST(BackwardCases, A22_dead_columns_over_poison) {
  const ColumnMask mask = mask_of(256, 256, [](std::int32_t j) { return HiddenRows{j < 128 ? 256 : 0, 256, 0, 0}; });
  for (const std::int64_t d : {64, 128}) check({1, 256, 256, 2, 1, d}, mask, "A22");
}
TEST(BackwardCases, A26_as_many_heads_as_rows_in_every_layout) {
  const ColumnMask mask = causal_with(64, [](std::int32_t) { return 64; });
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::padded})
    check({1, 64, 64, 64, 64, 64}, mask, "A26", layout);
}
TEST(BackwardCases, scales_at_both_ends_of_their_range) {
  const std::vector<std::int64_t> lengths{40, 150, 67};  // rows see nothing in blocks they visit
  const ColumnMask mask = masks::document({1, 1, 257, 257}, masks::documents_of(lengths));
  const ForwardWorkspace workspace;
  WorstErrors errors;
  for (const float scale : {1e-20F, 1e8F}) {
    for (const auto& [deterministic, columns] : modes) {
      for (const std::int64_t d : {64, 128}) {
        const float spread = 0.3F / std::sqrt(scale);  // of q and k: scores of the usual size
        Case c({1, 257, 257, 2, 1, d}, mask.view(), 8, deterministic, Layout::bshd, spread, {64, columns});
        c.forward.setup.scale = scale;
        c.forward.poison(), c.poison();
        c.run(workspace);
        const std::string how =
            "scale " + ::testing::PrintToString(scale) + ", " + std::to_string(columns) + " columns";
        ASSERT_TRUE(c.forward.expect_right(errors, how) && c.expect_right(errors, how)) << deterministic;
      }
    }
  }
}

/// Gradients bit by bit; of calls in deterministic mode.
std::string gradients(const Case& c) {
  return bytes_of(c.dq) + bytes_of(c.dk) + bytes_of(c.dv);
}

TEST(BackwardCases, A31_two_streams_and_other_shapes_on_one_workspace_equal_serial_calls) {
  const ColumnMask small = causal_with(500, [](std::int32_t) { return 300; }),
                   large = causal_with(1500, [](std::int32_t j) { return j + 200; });
  const ForwardWorkspace workspace;
  Case a({1, 500, 500, 4, 2, 128}, small.view(), 1, true), b({1, 1500, 1500, 2, 1, 64}, large.view(), 2, true);
  a.run(workspace), b.run(workspace);
  const std::string a_right = gradients(a), b_right = gradients(b);
  DeviceBuffer<std::uint8_t> shared(std::max(a.workspace.size(), b.workspace.size()));
  for (Case* c : {&a, &b, &a}) {  // each finds what the other left
    std::swap(c->workspace, shared);
    c->dq.poison(), c->dk.poison(), c->dv.poison();
    c->run_backward();
    EXPECT_TRUE(gradients(*c) == (c == &a ? a_right : b_right));
    std::swap(c->workspace, shared);
  }
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams)
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  a.poison(), b.poison();
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (int n = 0; n < 50; ++n) a.run_backward(streams[0]), b.run_backward(streams[1]);
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  sm90::check_backward_workspace(a.workspace.data(), nullptr),
      sm90::check_backward_workspace(b.workspace.data(), nullptr);
  EXPECT_TRUE(gradients(a) == a_right);
  EXPECT_TRUE(gradients(b) == b_right);
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
}
TEST(BackwardCases, A32_a_captured_call_replays_on_a_refilled_mask) {
  const ColumnMask one = causal_with(16, [](std::int32_t) { return 16; });
  const auto end = ends({5, 5, 6});
  const ColumnMask three = causal_with(16, [&](std::int32_t j) { return end[j]; });
  const ForwardWorkspace workspace;
  for (const auto& [deterministic, columns] : modes) {
    Case c({1, 16, 16, 2, 1, 128}, one.view(), 1, deterministic, Layout::bshd, 1, {64, columns});
    WorstErrors errors;
    c.run(workspace);  // kernels are loaded before the capture
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    c.mask.refill(c.forward.vectors.view(), stream);
    c.forward.run(workspace, stream);
    c.run_backward(stream);
    require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    require(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    const auto replay = [&](const char* name) {
      c.forward.out.poison(), c.poison();
      require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      require(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
      require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      sm90::check_backward_workspace(c.workspace.data(), nullptr);
      EXPECT_TRUE(c.expect_right(errors, name));
      return gradients(c);
    };
    const std::string first = replay("one document");
    const std::vector<std::int32_t> lts(three.lts().begin(), three.lts().end());
    c.forward.vectors.lts.upload(lts), c.forward.oracle_vectors.lts.upload(lts);
    EXPECT_NE(replay("three documents"), first);
    cudaGraphExecDestroy(executable), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
  }
}

/// Positions [first, first + part's) of `whole`, both [1][position][head][dim].
void take(const DeviceTensor<__nv_bfloat16>& part, const DeviceTensor<__nv_bfloat16>& whole, std::int64_t first) {
  const auto bytes = static_cast<std::size_t>(part.size()) * sizeof(__nv_bfloat16);
  require(cudaMemcpy(part.data(), whole.data() + first * whole.strides()[1], bytes, cudaMemcpyDeviceToDevice),
          "cudaMemcpy of a part");
}
TEST(BackwardCases, tensors_of_more_than_2_31_elements_are_right_on_both_sides_of_them) {
  constexpr std::int64_t heads = 128, dim = 128, document = 250, documents = 532, rows = document * documents;
  constexpr std::int64_t border =
      (std::int64_t{1} << 31) / (heads * dim * document);  // the document element 2^31 is in
  static_assert(rows * heads * dim > std::int64_t{1} << 31 && border + 1 < documents);
  const ColumnMask mask = causal_with(rows, [](std::int32_t j) { return (j / document + 1) * document; }),
                   causal = causal_with(document, [](std::int32_t) { return document; });
  const ForwardWorkspace workspace;
  for (const auto& [deterministic, columns] : modes) {
    Case whole({1, rows, rows, heads, heads, dim}, mask.view(), 5, deterministic, Layout::bshd, 1, {64, columns});
    whole.forward.poison(), whole.poison();
    whole.run(workspace);
    for (const std::int64_t n : {std::int64_t{0}, border, documents - 1}) {
      Case part({1, document, document, heads, heads, dim}, causal.view(), 6, deterministic);
      const std::int64_t first = n * document;
      take(part.forward.q, whole.forward.q, first), take(part.forward.k, whole.forward.k, first);
      take(part.forward.v, whole.forward.v, first), take(part.forward.out, whole.forward.out, first);
      take(part.dout, whole.dout, first), take(part.dq, whole.dq, first);
      take(part.dk, whole.dk, first), take(part.dv, whole.dv, first);
      require(cudaMemcpy2D(part.forward.lse.data(), document * sizeof(float), whole.forward.lse.data() + first,
                           rows * sizeof(float), document * sizeof(float), heads, cudaMemcpyDeviceToDevice),
              "cudaMemcpy2D of lse");
      WorstErrors errors;
      const std::string how = "document " + std::to_string(n) + ", " + std::to_string(columns) + " columns";
      ASSERT_TRUE(part.forward.expect_right(errors, how) && part.expect_right(errors, how)) << deterministic;
    }
  }
}

}  // namespace
}  // namespace flashmask::device
