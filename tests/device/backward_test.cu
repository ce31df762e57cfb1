// The backward kernels against the float64 oracle, over NaN-poisoned outputs: shapes, layouts and every kind of mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "device/backward_harness.cuh"
#include "sm90/backward/launch.hpp"
#include "sm90/tile_map/device_map.hpp"
#include "support/mask_families.hpp"

namespace flashmask::device {
namespace {

using flashmask::testing::AttentionExtents;
using flashmask::testing::MaskKind;
using flashmask::testing::Random;
using flashmask::testing::random_family_mask;
using flashmask::testing::RawMask;
using Bf16 = __nv_bfloat16;

template <typename T>
bool check(const AttentionExtents& e, MaskKind kind, WorstErrors& errors, std::uint64_t seed,
           Layout layout = Layout::bshd, bool deterministic = false) {
  static const ForwardWorkspace workspace;
  Random random(seed);
  const RawMask mask = random_family_mask(random, {e.batch, e.mask_heads, e.rows, e.columns}, kind);
  BackwardCase<T> c(shape_of(e), mask.view(), seed, deterministic, layout);
  c.run(workspace);
  return c.expect_right(errors, describe(e) + " mask kind " + std::to_string(static_cast<int>(kind)) + " seed " +
                                    std::to_string(seed) + (deterministic ? " deterministic" : ""));
}

TEST(Backward, one_tile_of_a_full_mask) {
  WorstErrors errors;
  check<Bf16>({1, 64, 128, 1, 1, 1, 128}, MaskKind::full, errors, 1);
}

TEST(Backward, several_tiles_blocks_heads_and_batch_rows) {
  WorstErrors errors;
  check<Bf16>({1, 256, 256, 2, 2, 1, 128}, MaskKind::full, errors, 2);
  check<Bf16>({2, 1024, 1024, 3, 3, 1, 128}, MaskKind::causal, errors, 3);
  check<Bf16>({2, 1024, 768, 2, 2, 2, 128}, MaskKind::causal_documents, errors, 4);
}

TEST(Backward, head_dim_64_and_fp16) {
  WorstErrors errors;
  check<Bf16>({1, 512, 512, 2, 2, 1, 64}, MaskKind::causal, errors, 5);
  check<__half>({1, 512, 512, 2, 2, 1, 128}, MaskKind::causal, errors, 6);
  check<__half>({1, 512, 512, 2, 2, 1, 64}, MaskKind::documents, errors, 7);
}

TEST(Backward, ragged_lengths_and_padded_head_dims) {
  WorstErrors errors;
  check<Bf16>({1, 1, 127, 1, 1, 1, 128}, MaskKind::causal, errors, 8);
  check<Bf16>({1, 239, 203, 6, 2, 1, 80}, MaskKind::causal, errors, 9);
  check<Bf16>({1, 300, 301, 2, 1, 1, 96}, MaskKind::full, errors, 10, Layout::padded);
  check<Bf16>({1, 65, 129, 2, 1, 1, 32}, MaskKind::documents, errors, 11, Layout::bhsd);
}

TEST(Backward, every_mask_kind_with_grouped_heads_and_per_head_masks) {
  WorstErrors errors;
  for (int kind = 0; kind < static_cast<int>(MaskKind::count); ++kind) {
    const auto k = static_cast<MaskKind>(kind);
    if (!check<Bf16>({2, 500, 450, 4, 2, 1, 128}, k, errors, 20 + kind)) break;
    if (!check<Bf16>({2, 500, 450, 4, 2, 4, 128}, k, errors, 60 + kind)) break;
    if (!check<__half>({1, 500, 450, 4, 2, 2, 64}, k, errors, 90 + kind, Layout::bhsd)) break;
  }
}

TEST(Backward, one_mask_for_all_batch_rows) {
  const ForwardWorkspace workspace;
  WorstErrors errors;
  for (const std::int64_t mask_heads : {1, 2, 4}) {
    const AttentionExtents e{3, 300, 420, 4, 2, mask_heads, 128};
    Random random(7);
    const RawMask one = random_family_mask(random, {1, mask_heads, e.rows, e.columns}, MaskKind::causal_documents);
    RawMask all({e.batch, mask_heads, e.rows, e.columns});
    for (std::int64_t i = 0; i < all.shape.vector_size(); ++i) all.set(i, one.view().at(i % one.shape.vector_size()));
    BackwardCase<Bf16> c(shape_of(e), all.view(), 8, false);
    const DeviceMaskVectors vectors(one.view());
    c.mask = sm90::DeviceMask(one.shape, sm90::backward_tile());
    c.mask.refill(vectors.view(), nullptr);
    c.run(workspace);
    c.expect_right(errors, describe(e));
  }
}

TEST(Backward, without_columns_or_rows_the_gradients_that_exist_are_zero) {
  for (const bool deterministic : {false, true}) {
    // 140,000 columns: so many blocks a multiprocessor that they are dealt in sections by the bytes of their rows.
    for (const auto& [rows, columns] : {std::pair<int, int>{100, 0}, {0, 100}, {0, 140000}}) {
      const int most = std::max(rows, columns);
      const AttentionShape shape{1, rows, columns, 2, 2, 128};
      sm90::DeviceMask mask({1, 1, rows, columns}, sm90::backward_tile());
      mask.refill({nullptr, nullptr, nullptr, nullptr, {1, 1, rows, columns}}, nullptr);
      DeviceTensor<Bf16> q(1, most, 2, 128), dq(1, 100, 2, 128), dk(1, most, 2, 128), dv(1, most, 2, 128);
      fill_normal(q, 1);
      const DeviceBuffer<float> lse(std::vector<float>(200, -INFINITY));
      const DeviceBuffer<std::uint8_t> workspace(
          static_cast<std::int64_t>(sm90::backward_workspace_bytes(shape, {1, 1, rows, columns}, deterministic)));
      sm90::BackwardArguments a;
      a.shape = shape, a.map = &mask.view(), a.lse = lse.data(), a.deterministic = deterministic;
      a.q = a.k = a.v = a.out = a.dout = q.view();
      a.dq = dq.mutable_view(), a.dk = dk.mutable_view(), a.dv = dv.mutable_view();
      a.workspace = workspace.data(), a.workspace_bytes = static_cast<std::size_t>(workspace.size());
      sm90::backward(a);
      sm90::check_backward_workspace(workspace.data(), nullptr);
      for (const auto* t : {&dq, &dk, &dv}) {
        if ((t == &dq) != (rows > 0)) continue;
        for (const double x : t->download()) ASSERT_EQ(x, 0) << rows << " rows, " << columns << " columns";
      }
    }
  }
}

TEST(BackwardDeterministic, equals_the_oracle_on_every_mask_kind) {
  WorstErrors errors;
  for (int kind = 0; kind < static_cast<int>(MaskKind::count); ++kind) {
    const auto k = static_cast<MaskKind>(kind);
    if (!check<Bf16>({2, 300, 450, 4, 2, 4, 128}, k, errors, 120 + kind, Layout::bshd, true)) break;
    if (!check<__half>({1, 500, 300, 2, 2, 1, 64}, k, errors, 150 + kind, Layout::padded, true)) break;
    if (!check<Bf16>({1, 129, 450, 4, 1, 1, 80}, k, errors, 180 + kind, Layout::bhsd, true)) break;
  }
}

TEST(Backward, blocks_follow_the_given_order_and_chunks_report_completion) {
  const ForwardWorkspace forward_workspace;
  const AttentionExtents e{2, 300, 1000, 4, 2, 1, 128};
  Random random(3);
  const RawMask mask = random_family_mask(random, {e.batch, 1, e.rows, e.columns}, MaskKind::dead_columns);
  BackwardCase<Bf16> problem(shape_of(e), mask.view(), 4, false);
  problem.forward.run(forward_workspace);
  sm90::DeviceTileMap map(mask.shape, sm90::backward_tile());
  const DeviceMaskVectors& v = problem.forward.vectors;
  map.refill({v.lts.data(), v.lte.data(), v.uts.data(), v.ute.data()}, nullptr);
  std::vector<std::int32_t> order;  // last block first
  for (std::int32_t i = 2 * 8 - 1; i >= 0; --i) order.push_back(i);
  const DeviceBuffer<std::int32_t> device_order(order);
  constexpr std::int32_t chunk = 200;  // borders inside blocks
  const DeviceBuffer<std::uint32_t> counts(std::vector<std::uint32_t>(5, 0));
  sm90::backward_pass::BackwardCall c;
  c.shape = problem.forward.shape, c.map = map.view(), c.lse = problem.forward.lse.data();
  c.q = problem.forward.q.view(), c.k = problem.forward.k.view(), c.v = problem.forward.v.view();
  c.out = problem.forward.out.view(), c.dout = problem.dout.view();
  c.dq = problem.dq.mutable_view(), c.dk = problem.dk.mutable_view(), c.dv = problem.dv.mutable_view();
  c.scale = 1 / std::sqrt(static_cast<float>(e.head_dim));
  c.order = device_order.data();
  c.signal = {counts.data(), chunk};
  sm90::backward_pass::queue_backward(c, problem.workspace.data(), nullptr);
  sm90::check_backward_workspace(problem.workspace.data(), nullptr);
  WorstErrors errors;
  problem.expect_right(errors, "last block first");
  const std::vector<std::uint32_t> got = counts.download();
  for (std::int64_t n = 0; n < 5; ++n) {
    EXPECT_EQ(got[n], sm90::backward_pass::complete_count(c.shape, chunk, n)) << "chunk " << n;
  }
}

}  // namespace
}  // namespace flashmask::device
