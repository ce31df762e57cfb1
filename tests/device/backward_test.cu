// The backward kernels against the float64 oracle, over NaN-poisoned outputs.
#include "device/backward_harness.cuh"

#include <utility>

namespace flashmask::sm90::backward_tests {
namespace {

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
  WorstErrors errors;
  for (const std::int64_t mask_heads : {1, 2, 4}) {
    const AttentionExtents e{3, 300, 420, 4, 2, mask_heads, 128};
    Random random(7);
    const RawMask one = random_family_mask(random, {1, mask_heads, e.rows, e.columns}, MaskKind::causal_documents);
    RawMask all({e.batch, mask_heads, e.rows, e.columns});
    for (std::int64_t i = 0; i < all.shape.vector_size(); ++i) all.set(i, one.view().at(i % one.shape.vector_size()));
    Problem<Bf16> problem(e, all, Layout::bshd, false, 8);
    const DeviceMaskVectors vectors(one.view());
    DeviceTileMap map(one.shape, TileShape{64, 128});
    map.refill({vectors.lts.data(), vectors.lte.data(), vectors.uts.data(), vectors.ute.data()}, nullptr);
    problem.map = std::move(map);
    problem.check(errors, describe(e));
  }
}

TEST(Backward, without_columns_or_rows_the_gradients_that_exist_are_zero) {
  for (const bool deterministic : {false, true}) {
    for (const auto& [rows, columns] : {std::pair<int, int>{100, 0}, {0, 100}}) {
      const AttentionShape shape{1, rows, columns, 2, 2, 128};
      DeviceTileMap map({1, 1, rows, columns}, TileShape{64, 128});
      map.refill({}, nullptr);
      DeviceTensor<Bf16> q(1, 100, 2, 128), dq(1, 100, 2, 128), dk(1, 100, 2, 128), dv(1, 100, 2, 128);
      device::fill_normal(q, 1);
      const DeviceBuffer<float> lse(std::vector<float>(200, -INFINITY));
      const DeviceBuffer<std::uint8_t> workspace(
          static_cast<std::int64_t>(backward_pass::workspace_layout(shape, 1, deterministic).bytes));
      BackwardCall c;
      c.shape = shape, c.map = map.view(), c.lse = lse.data(), c.scale = 1, c.deterministic = deterministic;
      c.q = c.k = c.v = c.out = c.dout = q.view();
      c.dq = dq.mutable_view(), c.dk = dk.mutable_view(), c.dv = dv.mutable_view();
      backward_pass::queue_backward(c, workspace.data(), nullptr);
      require(cudaDeviceSynchronize(), "backward");
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

TEST(BackwardDeterministic, twenty_runs_are_bitwise_equal) {
  for (const auto& [query_heads, kv_heads] : {std::pair<int, int>{4, 4}, {4, 2}, {4, 1}}) {
    for (const int head_dim : {64, 128}) {
      const AttentionExtents e{1, 700, 700, query_heads, kv_heads, query_heads, head_dim};
      Random random(5);
      const RawMask mask = random_family_mask(random, {1, e.mask_heads, e.rows, e.columns}, MaskKind::dead_columns);
      Problem<Bf16> problem(e, mask, Layout::bshd, true, 6);
      std::vector<std::vector<Bf16>> first;
      for (int n = 0; n < 20; ++n) {
        problem.poison();
        problem.run(problem.call());
        std::vector<std::vector<Bf16>> now{problem.dq.buffer().download(), problem.dk.buffer().download(),
                                           problem.dv.buffer().download()};
        if (n == 0) first = now;
        for (std::size_t t = 0; t < 3; ++t) {
          ASSERT_EQ(std::memcmp(now[t].data(), first[t].data(), now[t].size() * sizeof(Bf16)), 0)
              << describe(e) << " run " << n << " tensor " << t;
        }
      }
    }
  }
}

/// With Q = 0 every visible column has P = 1 / count; one-hot dO then makes dV show, cell by cell, who sees whom.
TEST(Backward, transposed_count_probe_shows_every_visible_cell) {
  constexpr std::int64_t n = 128;
  for (int kind = 0; kind < static_cast<int>(MaskKind::count); ++kind) {
    const AttentionExtents e{1, n, 200, 1, 1, 1, n};
    Random random(300 + kind);
    const RawMask mask = random_family_mask(random, {1, 1, e.rows, e.columns}, static_cast<MaskKind>(kind));
    Problem<Bf16> problem(e, mask, Layout::bshd, false, 9, 0);
    std::vector<double> one_hot(n * n, 0);
    for (std::int64_t i = 0; i < n; ++i) one_hot[i * n + i] = 1;
    upload(problem.dout, one_hot);
    problem.poison();
    problem.run(problem.call());
    const std::vector<double> dv = problem.dv.download();
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < e.columns; ++j) {
        const double want = mask.visible(0, 0, i, j) ? std::exp(-problem.exact.lse[i]) : 0;
        ASSERT_NEAR(dv[j * n + i], want, want / 128) << "kind " << kind << " row " << i << " column " << j;
      }
    }
  }
}

TEST(Backward, blocks_follow_the_given_order_and_chunks_report_completion) {
  const AttentionExtents e{2, 300, 1000, 4, 2, 1, 128};
  Random random(3);
  const RawMask mask = random_family_mask(random, {e.batch, 1, e.rows, e.columns}, MaskKind::dead_columns);
  Problem<Bf16> problem(e, mask, Layout::bshd, false, 4);
  std::vector<std::int32_t> order;  // last block first
  for (std::int32_t i = 2 * 8 - 1; i >= 0; --i) order.push_back(i);
  const DeviceBuffer<std::int32_t> device_order(order);
  constexpr std::int32_t chunk = 200;  // borders inside blocks
  const DeviceBuffer<std::uint32_t> counts(std::vector<std::uint32_t>(5, 0));
  BackwardCall c = problem.call();
  c.order = device_order.data();
  c.signal = {counts.data(), chunk};
  problem.poison();
  problem.run(c);
  WorstErrors errors;
  errors.expect_close("dk", problem.dk.download(), problem.exact.dk, problem.naive.dk, DType::bf16, {}, cancellation);
  errors.expect_close("dq", problem.dq.download(), problem.exact.dq, problem.naive.dq, DType::bf16, {}, cancellation);
  const std::vector<std::uint32_t> got = counts.download();
  for (std::int64_t n = 0; n < 5; ++n) {
    EXPECT_EQ(got[n], backward_pass::complete_count(problem.shape, chunk, n)) << "chunk " << n;
  }
}

TEST(Backward, a_workspace_serves_one_call_after_another) {
  WorstErrors errors;
  Random random(2);
  const AttentionExtents e{1, 320, 384, 2, 2, 1, 128};
  const RawMask mask = random_family_mask(random, {1, 1, e.rows, e.columns}, MaskKind::causal);
  Problem<Bf16> problem(e, mask, Layout::bshd, false, 3);
  problem.poison();
  const int repeats = device::count_from_environment("FLASHMASK_DEVICE_REPEATS", 1000);
  for (int n = 0; n < repeats; ++n) backward_pass::queue_backward(problem.call(), problem.workspace.data(), nullptr);
  require(cudaDeviceSynchronize(), "1000 calls");
  EXPECT_EQ(backward_pass::read_error(problem.workspace.data(), nullptr), 0U);
  errors.expect_close("dq", problem.dq.download(), problem.exact.dq, problem.naive.dq, DType::bf16);
  errors.expect_close("dk", problem.dk.download(), problem.exact.dk, problem.naive.dk, DType::bf16);
  errors.expect_close("dv", problem.dv.download(), problem.exact.dv, problem.naive.dv, DType::bf16);
}

TEST(Backward, random_masks_and_shapes) {
  WorstErrors errors;
  for (int n = 0; n < device::count_from_environment("FLASHMASK_DEVICE_DRAWS", 2000); ++n) {
    Random random(1000 + n);
    const AttentionExtents e = random_attention_shape(random, 400, 400);
    const RawMask mask = random_family_mask(random, {e.batch, e.mask_heads, e.rows, e.columns});
    const Layout layout = pick(random, {Layout::bshd, Layout::bhsd, Layout::padded});
    const std::string context = describe(e) + " seed " + std::to_string(n);
    const bool deterministic = random.one_in(4);
    const bool ok = random.one_in(2) ? Problem<Bf16>(e, mask, layout, deterministic, n).check(errors, context)
                                     : Problem<__half>(e, mask, layout, deterministic, n).check(errors, context);
    if (!ok) break;
  }
}

TEST(BackwardInterface, the_public_call_equals_the_oracle) {
  WorstErrors errors;
  const AttentionExtents e{1, 400, 300, 4, 2, 1, 128};
  Random random(11);
  const RawMask raw = random_family_mask(random, {1, 1, e.rows, e.columns}, MaskKind::causal);
  Problem<Bf16> problem(e, raw, Layout::bshd, false, 12);
  problem.poison();
  DeviceMask mask(problem.vectors.shape, backward_tile());
  mask.refill(problem.vectors.view(), nullptr);
  BackwardArguments a;
  a.shape = problem.shape, a.map = &mask.view(), a.lse = problem.lse.data();
  a.q = problem.q.view(), a.k = problem.k.view(), a.v = problem.v.view();
  a.out = problem.out.view(), a.dout = problem.dout.view();
  a.dq = problem.dq.mutable_view(), a.dk = problem.dk.mutable_view(), a.dv = problem.dv.mutable_view();
  ASSERT_EQ(static_cast<std::size_t>(problem.workspace.size()),
            backward_workspace_bytes(problem.shape, problem.vectors.shape, false));
  a.workspace = problem.workspace.data();
  backward(a);
  check_backward_workspace(a.workspace, nullptr);
  errors.expect_close("dq", problem.dq.download(), problem.exact.dq, problem.naive.dq, DType::bf16, {}, cancellation);
  errors.expect_close("dk", problem.dk.download(), problem.exact.dk, problem.naive.dk, DType::bf16, {}, cancellation);
  errors.expect_close("dv", problem.dv.download(), problem.exact.dv, problem.naive.dv, DType::bf16);
}

}  // namespace
}  // namespace flashmask::sm90::backward_tests
