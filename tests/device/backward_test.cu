// The backward kernels against the float64 oracle, over NaN-poisoned outputs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "device/compare.hpp"
#include "device/device_tensor.hpp"
#include "device/naive_reference.cuh"
#include "sm90/backward/launch.hpp"
#include "sm90/tile_map/device_map.hpp"
#include "support/mask_families.hpp"

namespace flashmask::sm90 {
namespace {

using backward_pass::BackwardCall;
using device::DeviceBuffer;
using device::DeviceMaskVectors;
using device::DeviceTensor;
using device::Layout;
using device::naive_attention;
using device::NaiveResult;
using device::require;
using device::WorstErrors;
using flashmask::testing::AttentionExtents;
using flashmask::testing::MaskKind;
using flashmask::testing::pick;
using flashmask::testing::Random;
using flashmask::testing::random_attention_shape;
using flashmask::testing::random_family_mask;
using flashmask::testing::RawMask;

std::string describe(const AttentionExtents& e) {
  std::ostringstream text;
  text << "batch " << e.batch << " rows " << e.rows << " columns " << e.columns << " heads " << e.query_heads << ':'
       << e.kv_heads << " mask heads " << e.mask_heads << " head_dim " << e.head_dim;
  return text.str();
}

template <typename T>
void upload(DeviceTensor<T>& to, const std::vector<double>& from) {
  const auto& e = to.extents();
  const auto& s = to.strides();
  std::vector<T> raw = to.buffer().download();
  std::size_t i = 0;
  for (std::int64_t b = 0; b < e[0]; ++b)
    for (std::int64_t p = 0; p < e[1]; ++p)
      for (std::int64_t h = 0; h < e[2]; ++h)
        for (std::int64_t d = 0; d < e[3]; ++d)
          raw[b * s[0] + p * s[1] + h * s[2] + d] = static_cast<T>(static_cast<float>(from[i++]));
  to.buffer().upload(raw);
}

/// Where a row sees one column, dP - D is a difference of equal sums, 0 only if both are added in one order: takes what
/// lies within the rounding of such sums for the exact value.
std::vector<double> settled(std::vector<double> got, const std::vector<double>& exact) {
  constexpr double rounding = 1e-5;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::abs(got[i] - exact[i]) < rounding) got[i] = exact[i];
  }
  return got;
}

/// Inputs, the oracle's forward, and poisoned outputs of one call.
template <typename T>
struct Problem {
  AttentionExtents e;
  AttentionShape shape;
  DeviceMaskVectors vectors;
  DeviceTensor<T> q, k, v, out, dout, dq, dk, dv;
  DeviceBuffer<float> lse;
  NaiveResult exact, naive;
  DeviceTileMap map;
  bool deterministic;
  DeviceBuffer<std::uint8_t> workspace;

  Problem(const AttentionExtents& extents, const RawMask& mask, Layout layout, bool is_deterministic,
          std::uint64_t seed, float query_scale = 1)
      : e(extents),
        shape{e.batch, e.rows, e.columns, e.query_heads, e.kv_heads, e.head_dim},
        vectors(mask.view()),
        q(e.batch, e.rows, e.query_heads, e.head_dim, layout),
        k(e.batch, e.columns, e.kv_heads, e.head_dim, layout),
        v(e.batch, e.columns, e.kv_heads, e.head_dim, layout),
        out(e.batch, e.rows, e.query_heads, e.head_dim, layout),
        dout(e.batch, e.rows, e.query_heads, e.head_dim, layout),
        dq(e.batch, e.rows, e.query_heads, e.head_dim, layout),
        dk(e.batch, e.columns, e.kv_heads, e.head_dim, layout),
        dv(e.batch, e.columns, e.kv_heads, e.head_dim, layout),
        map(vectors.shape, TileShape{64, 128}),
        deterministic(is_deterministic) {
    device::fill_normal(q, seed, query_scale), device::fill_normal(k, seed + 1), device::fill_normal(v, seed + 2);
    device::fill_normal(dout, seed + 3);
    exact = naive_attention<double, false, T>({shape, &q, &k, &v, &dout, &vectors});
    naive = naive_attention<float, true, T>({shape, &q, &k, &v, &dout, &vectors});
    upload(out, exact.out);
    lse = DeviceBuffer<float>(std::vector<float>(exact.lse.begin(), exact.lse.end()));
    map.refill({vectors.lts.data(), vectors.lte.data(), vectors.uts.data(), vectors.ute.data()}, nullptr);
    workspace = DeviceBuffer<std::uint8_t>(
        static_cast<std::int64_t>(backward_pass::workspace_layout(shape, e.batch * e.mask_heads, deterministic).bytes));
  }

  [[nodiscard]] BackwardCall call() const {
    BackwardCall c;
    c.shape = shape;
    c.map = map.view();
    c.q = q.view(), c.k = k.view(), c.v = v.view(), c.out = out.view(), c.dout = dout.view();
    c.lse = lse.data();
    c.dq = dq.mutable_view(), c.dk = dk.mutable_view(), c.dv = dv.mutable_view();
    c.scale = 1 / std::sqrt(static_cast<float>(e.head_dim));
    c.deterministic = deterministic;
    return c;
  }

  void poison() { dq.poison(), dk.poison(), dv.poison(), workspace.poison(); }

  void run(const BackwardCall& c) {
    backward_pass::queue_backward(c, workspace.data(), nullptr);
    require(cudaDeviceSynchronize(), "backward");
    ASSERT_EQ(backward_pass::read_error(workspace.data(), nullptr), 0U);
  }

  bool check(WorstErrors& errors, const std::string& context) {
    poison();
    run(call());
    const DType dtype = device::dtype_of<T>;
    bool ok = errors.expect_close("dq", settled(dq.download(), exact.dq), exact.dq, naive.dq, dtype, context);
    ok = errors.expect_close("dk", settled(dk.download(), exact.dk), exact.dk, naive.dk, dtype, context) && ok;
    return errors.expect_close("dv", dv.download(), exact.dv, naive.dv, dtype, context) && ok;
  }
};

template <typename T>
bool check(const AttentionExtents& e, MaskKind kind, WorstErrors& errors, std::uint64_t seed,
           Layout layout = Layout::bshd, bool deterministic = false) {
  Random random(seed);
  const RawMask mask = random_family_mask(random, {e.batch, e.mask_heads, e.rows, e.columns}, kind);
  Problem<T> problem(e, mask, layout, deterministic, seed);
  return problem.check(errors, describe(e) + " mask kind " + std::to_string(static_cast<int>(kind)) + " seed " +
                                   std::to_string(seed) + (deterministic ? " deterministic" : ""));
}

using Bf16 = __nv_bfloat16;

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
  errors.expect_close("dk", settled(problem.dk.download(), problem.exact.dk), problem.exact.dk, problem.naive.dk,
                      DType::bf16);
  errors.expect_close("dq", settled(problem.dq.download(), problem.exact.dq), problem.exact.dq, problem.naive.dq,
                      DType::bf16);
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
  for (int n = 0; n < 1000; ++n) backward_pass::queue_backward(problem.call(), problem.workspace.data(), nullptr);
  require(cudaDeviceSynchronize(), "1000 calls");
  EXPECT_EQ(backward_pass::read_error(problem.workspace.data(), nullptr), 0U);
  errors.expect_close("dq", problem.dq.download(), problem.exact.dq, problem.naive.dq, DType::bf16);
  errors.expect_close("dk", problem.dk.download(), problem.exact.dk, problem.naive.dk, DType::bf16);
  errors.expect_close("dv", problem.dv.download(), problem.exact.dv, problem.naive.dv, DType::bf16);
}

TEST(Backward, random_masks_and_shapes) {
  WorstErrors errors;
  for (int n = 0; n < 600; ++n) {
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

}  // namespace
}  // namespace flashmask::sm90
