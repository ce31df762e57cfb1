// The backward kernels against the float64 oracle, over NaN-poisoned outputs.
#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
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
        static_cast<std::int64_t>(backward_pass::workspace_layout(shape, e.mask_heads, deterministic).bytes));
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

TEST(Backward, random_masks_and_shapes) {
  WorstErrors errors;
  for (int n = 0; n < 200; ++n) {
    Random random(1000 + n);
    const AttentionExtents e = random_attention_shape(random, 400, 400);
    const RawMask mask = random_family_mask(random, {e.batch, e.mask_heads, e.rows, e.columns});
    const Layout layout = pick(random, {Layout::bshd, Layout::bhsd, Layout::padded});
    const std::string context = describe(e) + " seed " + std::to_string(n);
    const bool ok = random.one_in(2) ? Problem<Bf16>(e, mask, layout, false, n).check(errors, context)
                                     : Problem<__half>(e, mask, layout, false, n).check(errors, context);
    if (!ok) break;
  }
}

}  // namespace
}  // namespace flashmask::sm90
