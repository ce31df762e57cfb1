// One backward call as tests make it: the forward kernel's out and lse, NaN-poisoned gradients, the oracle.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "device/forward_harness.cuh"
#include "sm90/backward/launch.hpp"
#include "support/mask_families.hpp"

namespace flashmask::device {

inline AttentionShape shape_of(const testing::AttentionExtents& e) {
  return {e.batch, e.rows, e.columns, e.query_heads, e.kv_heads, e.head_dim};
}

inline std::string describe(const testing::AttentionExtents& e) {
  return "batch " + std::to_string(e.batch) + " rows " + std::to_string(e.rows) + " columns " +
         std::to_string(e.columns) + " heads " + std::to_string(e.query_heads) + ":" + std::to_string(e.kv_heads) +
         " mask heads " + std::to_string(e.mask_heads) + " head_dim " + std::to_string(e.head_dim);
}

template <typename T>
struct BackwardCase {
  ForwardCase<T> forward;
  DeviceTensor<T> dout, dq, dk, dv;
  sm90::DeviceMask mask;
  bool deterministic;
  DeviceBuffer<std::uint8_t> workspace;

  BackwardCase(const AttentionShape& s, const MaskView& host_mask, std::uint64_t seed, bool is_deterministic,
               Layout layout = Layout::bshd, float spread = 1, TileShape tile = sm90::backward_tile(),
               bool refilled = true)
      : forward(s, host_mask, seed, {.layout = layout, .spread = spread}),
        dout(s.batch, s.rows, s.query_heads, s.head_dim, layout),
        dq(s.batch, s.rows, s.query_heads, s.head_dim, layout),
        dk(s.batch, s.columns, s.kv_heads, s.head_dim, layout),
        dv(s.batch, s.columns, s.kv_heads, s.head_dim, layout),
        mask(host_mask.shape, tile),
        deterministic(is_deterministic),
        workspace(static_cast<std::int64_t>(sm90::backward_workspace_bytes(s, host_mask.shape, is_deterministic))) {
    fill_normal(dout, 4 * seed + 4);
    if (refilled) mask.refill(forward.vectors.view(), nullptr);
  }

  void poison() { dq.poison(), dk.poison(), dv.poison(), workspace.poison(); }
  void run_backward(cudaStream_t stream = nullptr) const {
    const ForwardCase<T>& f = forward;
    sm90::BackwardArguments a;
    a.shape = f.shape, a.map = &mask.view(), a.scale = f.setup.scale, a.deterministic = deterministic;
    a.q = f.q.view(), a.k = f.k.view(), a.v = f.v.view(), a.out = f.out.view(), a.dout = dout.view();
    a.lse = f.lse.data(), a.workspace = workspace.data(), a.stream = stream;
    a.workspace_bytes = static_cast<std::size_t>(workspace.size());
    a.dq = dq.mutable_view(), a.dk = dk.mutable_view(), a.dv = dv.mutable_view();
    sm90::backward(a);
  }
  void run(const ForwardWorkspace& forward_workspace) {
    forward.run(forward_workspace);
    run_backward();
    forward_workspace.check();
    sm90::check_backward_workspace(workspace.data(), nullptr);
  }

  bool expect_right(WorstErrors& errors, const std::string& context) const {
    const ForwardCase<T>& f = forward;
    NaiveInputs<T> in{f.shape, &f.q, &f.k, &f.v, &dout, &f.oracle_vectors};
    if (f.setup.scale) in.scale = static_cast<double>(*f.setup.scale);
    const NaiveResult exact = naive_attention<double, false>(in), naive = naive_attention<float, true>(in);
    // dS = P (dO.V - dO.O): both products are float32 sums of terms of at most |dO||V| in all, 4 roundings each.
    const double scale = in.scale.value_or(1 / std::sqrt(static_cast<double>(f.shape.head_dim)));
    // And O is read as it was stored, half an ulp away from what it was; a call of few rows would otherwise be judged
    // by the luck of the naive computation's own roundings.
    constexpr DType dtype = dtype_of<T>;
    const double half_ulp = std::ldexp(1.0, dtype == DType::bf16 ? -8 : -11);
    const double ds = scale * (2 * 4 * std::ldexp(1.0, -24) * largest_norm(dout) * largest_norm(f.v) +
                               half_ulp * largest_product(dout, exact.out));
    bool right = errors.expect_close("dq", dq.download(), exact.dq, naive.dq, dtype, context, ds * largest(f.k));
    right &= errors.expect_close("dk", dk.download(), exact.dk, naive.dk, dtype, context, ds * largest(f.q));
    right &= errors.expect_close("dv", dv.download(), exact.dv, naive.dv, dtype, context);
    return right;
  }

 private:
  static double largest(const DeviceTensor<T>& tensor) {
    double most = 0;
    for (const double x : tensor.download()) most = std::max(most, std::abs(x));
    return most;
  }
  /// The largest sum of |dO O| over one row.
  static double largest_product(const DeviceTensor<T>& x, const std::vector<double>& y) {
    const std::vector<double> values = x.download();
    const auto dim = static_cast<std::size_t>(x.extents()[3]);
    double most = 0;
    for (std::size_t i = 0; i < values.size(); i += dim) {
      double sum = 0;
      for (std::size_t d = 0; d < dim; ++d) sum += std::abs(values[i + d] * y[i + d]);
      most = std::max(most, sum);
    }
    return most;
  }
  static double largest_norm(const DeviceTensor<T>& tensor) {
    const std::vector<double> values = tensor.download();
    const auto dim = static_cast<std::size_t>(tensor.extents()[3]);
    double most = 0;
    for (std::size_t i = 0; i < values.size(); i += dim) {
      double sum = 0;
      for (std::size_t d = 0; d < dim; ++d) sum += values[i + d] * values[i + d];
      most = std::max(most, std::sqrt(sum));
    }
    return most;
  }
};

/// To compare bit by bit.
template <typename T>
std::string bytes_of(const DeviceTensor<T>& tensor) {
  const std::vector<T> raw = const_cast<DeviceTensor<T>&>(tensor).buffer().download();
  return {reinterpret_cast<const char*>(raw.data()), raw.size() * sizeof(T)};
}

/// The case as what the public function describes, for calls with options of their own.
template <typename T>
sm90::backward_pass::BackwardCall call_of(const BackwardCase<T>& c) {
  const ForwardCase<T>& f = c.forward;
  sm90::backward_pass::BackwardCall call;
  call.shape = f.shape, call.map = c.mask.view(), call.lse = f.lse.data(), call.deterministic = c.deterministic;
  call.q = f.q.view(), call.k = f.k.view(), call.v = f.v.view(), call.out = f.out.view(), call.dout = c.dout.view();
  call.dq = c.dq.mutable_view(), call.dk = c.dk.mutable_view(), call.dv = c.dv.mutable_view();
  call.scale = f.setup.scale.value_or(1 / std::sqrt(static_cast<float>(f.shape.head_dim)));
  return call;
}

/// Runs it over poisoned gradients and a poisoned workspace of its own size.
template <typename T>
void run_call(BackwardCase<T>& c, const sm90::backward_pass::BackwardCall& call) {
  const std::int64_t matrices = std::int64_t{call.map.batch} * call.map.heads;
  c.workspace = DeviceBuffer<std::uint8_t>(static_cast<std::int64_t>(
      sm90::backward_pass::workspace_layout(call.shape, matrices, call.deterministic, call.parts).bytes));
  c.poison();
  sm90::backward_pass::queue_backward(call, c.workspace.data(), nullptr);
  sm90::check_backward_workspace(c.workspace.data(), nullptr);
}

}  // namespace flashmask::device
