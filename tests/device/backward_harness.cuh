// One backward call as tests make it: random inputs, the oracle's forward and gradients, NaN-poisoned outputs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "device/compare.hpp"
#include "device/device_tensor.hpp"
#include "device/naive_reference.cuh"
#include "flashmask/error.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/backward/launch.hpp"
#include "sm90/tile_map/device_map.hpp"
#include "support/mask_families.hpp"

namespace flashmask::sm90::backward_tests {

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

inline std::string describe(const AttentionExtents& e) {
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

/// Where a row sees one column, dP - D is a difference of equal sums, 0 only if both are added in one order.
constexpr double cancellation = 1e-4;

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
    bool ok = errors.expect_close("dq", dq.download(), exact.dq, naive.dq, dtype, context, cancellation);
    ok = errors.expect_close("dk", dk.download(), exact.dk, naive.dk, dtype, context, cancellation) && ok;
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

}  // namespace flashmask::sm90::backward_tests
