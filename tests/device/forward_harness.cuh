// One forward call as tests make it: random inputs, NaN-poisoned outputs, a fresh map, the oracle and the allowance.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/compare.hpp"
#include "device/device_tensor.hpp"
#include "device/naive_reference.cuh"
#include "flashmask/sm90.hpp"

namespace flashmask::device {

/// Reused from call to call, as a user would.
struct ForwardWorkspace {
  DeviceBuffer<std::uint8_t> bytes{static_cast<std::int64_t>(sm90::forward_workspace_bytes())};
  ForwardWorkspace() { sm90::prepare_workspace(bytes.data(), nullptr); }
  void check() const { sm90::check_workspace(bytes.data(), nullptr); }
};

/// Tensors of one call. `spread` is the standard deviation of q and k (0: the count probe).
template <typename T>
struct ForwardCase {
  AttentionShape shape;
  DeviceMaskVectors vectors;
  DeviceTensor<T> q, k, v, out;
  DeviceBuffer<float> lse;
  sm90::DeviceMask mask;
  std::optional<float> scale{};
  std::int32_t grid = 0;

  ForwardCase(const AttentionShape& s, const MaskView& host_mask, std::uint64_t seed, Layout layout = Layout::bshd,
              float spread = 1)
      : shape(s),
        vectors(host_mask),
        q(s.batch, s.rows, s.query_heads, s.head_dim, layout),
        k(s.batch, s.columns, s.kv_heads, s.head_dim, layout),
        v(s.batch, s.columns, s.kv_heads, s.head_dim, layout),
        out(s.batch, s.rows, s.query_heads, s.head_dim, layout),
        lse(s.batch * s.query_heads * s.rows),
        mask(host_mask.shape, sm90::forward_tile(s.head_dim)) {
    fill_normal(q, 4 * seed + 1, spread), fill_normal(k, 4 * seed + 2, spread), fill_normal(v, 4 * seed + 3);
  }

  [[nodiscard]] sm90::ForwardArguments arguments(const ForwardWorkspace& workspace,
                                                 cudaStream_t stream = nullptr) const {
    sm90::ForwardArguments a;
    a.shape = shape, a.map = &mask.view(), a.grid = grid, a.scale = scale;
    a.q = q.view(), a.k = k.view(), a.v = v.view(), a.out = out.mutable_view(), a.lse = lse.data();
    a.workspace = workspace.bytes.data(), a.stream = stream;
    return a;
  }
  void run(const ForwardWorkspace& workspace, cudaStream_t stream = nullptr) {
    mask.refill(vectors.view(), stream);
    sm90::forward(arguments(workspace, stream));
  }
  [[nodiscard]] std::vector<double> lse_values() const {
    const std::vector<float> raw = lse.download();
    return {raw.begin(), raw.end()};
  }
  /// Compares out and lse with the oracle; true if both hold.
  bool expect_right(WorstErrors& errors, const std::string& context) const {
    NaiveInputs<T> in{shape, &q, &k, &v, nullptr, &vectors};
    if (scale) in.scale = static_cast<double>(*scale);
    const NaiveResult exact = naive_attention<double, false>(in), naive = naive_attention<float, true>(in);
    const bool lse_right = errors.expect_close("lse", lse_values(), exact.lse, naive.lse, DType::f32, context);
    return errors.expect_close("out", out.download(), exact.out, naive.out, dtype_of<T>, context) && lse_right;
  }
};

}  // namespace flashmask::device
