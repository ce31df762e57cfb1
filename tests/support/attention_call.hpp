// One attention call over owned, NaN-poisoned memory, checked against the float64 oracle in all five results.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "attention/tolerance.hpp"
#include "core/dtype.hpp"
#include "cpu/reference.hpp"
#include "flashmask/attention.hpp"
#include "support/random_mask.hpp"

namespace flashmask::testing {

/// How a tensor lies in memory. transposed: head_dim outermost, so that no inner stride is 1.
enum class Layout { bshd, bhsd, transposed };

/// An owned tensor [batch][positions][heads][dim] in any dtype and layout, poisoned with NaN until filled.
class Tensor {
 public:
  Tensor() = default;
  Tensor(std::int64_t batch, std::int64_t positions, std::int64_t heads, std::int64_t dim, DType dtype,
         Layout layout = Layout::bshd)
      : extents_{batch, positions, heads, dim}, dtype_(dtype) {
    switch (layout) {
      case Layout::bshd:
        strides_ = bshd_strides(positions, heads, dim);
        break;
      case Layout::bhsd:
        strides_ = bhsd_strides(positions, heads, dim);
        break;
      case Layout::transposed:
        strides_ = {1, batch, batch * positions, batch * positions * heads};
        break;
    }
    bytes_.assign(static_cast<std::size_t>(size()) * size_of(dtype), 0xff);  // all bits set is a NaN in every dtype
  }
  [[nodiscard]] std::int64_t size() const { return extents_[0] * extents_[1] * extents_[2] * extents_[3]; }
  [[nodiscard]] std::int64_t extent(std::size_t axis) const { return extents_[axis]; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] TensorView view() const { return {bytes_.data(), dtype_, strides_}; }
  [[nodiscard]] MutableTensorView view() { return {bytes_.data(), dtype_, strides_}; }
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }

  void set(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d, float x) {
    const std::size_t at = offset(b, i, h, d);
    switch (dtype_) {
      case DType::f32:
        reinterpret_cast<float*>(bytes_.data())[at] = x;
        break;
      case DType::f16:
        reinterpret_cast<std::uint16_t*>(bytes_.data())[at] = core::float_to_f16(x);
        break;
      case DType::bf16:
        reinterpret_cast<std::uint16_t*>(bytes_.data())[at] = core::float_to_bf16(x);
        break;
    }
  }
  [[nodiscard]] float get(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d) const {
    const std::size_t at = offset(b, i, h, d);
    switch (dtype_) {
      case DType::f32:
        return reinterpret_cast<const float*>(bytes_.data())[at];
      case DType::f16:
        return core::f16_to_float(reinterpret_cast<const std::uint16_t*>(bytes_.data())[at]);
      case DType::bf16:
        return core::bf16_to_float(reinterpret_cast<const std::uint16_t*>(bytes_.data())[at]);
    }
    return 0;
  }
  /// f(batch, position, head, dim) for every element.
  template <typename F>
  void for_each(const F& f) const {
    for (std::int64_t b = 0; b < extents_[0]; ++b) {
      for (std::int64_t i = 0; i < extents_[1]; ++i) {
        for (std::int64_t h = 0; h < extents_[2]; ++h) {
          for (std::int64_t d = 0; d < extents_[3]; ++d) f(b, i, h, d);
        }
      }
    }
  }
  void fill_normal(Random& random) {
    for_each([&](auto b, auto i, auto h, auto d) { set(b, i, h, d, random.normal()); });
  }
  void fill(float x) {
    for_each([&](auto b, auto i, auto h, auto d) { set(b, i, h, d, x); });
  }
  /// Contiguous BSHD values.
  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> all;
    for_each([&](auto b, auto i, auto h, auto d) { all.push_back(get(b, i, h, d)); });
    return all;
  }

 private:
  [[nodiscard]] std::size_t offset(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d) const {
    return static_cast<std::size_t>(b * strides_[0] + i * strides_[1] + h * strides_[2] + d * strides_[3]);
  }
  std::array<std::int64_t, 4> extents_{}, strides_{};
  DType dtype_ = DType::f32;
  std::vector<std::uint8_t> bytes_;
};

/// Everything one forward and backward needs.
struct Call {
  AttentionShape shape;
  ColumnMask mask;
  Tensor q, k, v, dout, out, dq, dk, dv;
  std::vector<float> lse;
  const TileMap* map = nullptr;
  std::optional<float> scale{};
  int threads = 2;

  Call(const AttentionShape& s, ColumnMask m, DType dtype, Layout layout = Layout::bshd, std::uint64_t seed = 1)
      : shape(s), mask(std::move(m)) {
    const auto rows = [&] { return Tensor(s.batch, s.rows, s.query_heads, s.head_dim, dtype, layout); };
    const auto columns = [&] { return Tensor(s.batch, s.columns, s.kv_heads, s.head_dim, dtype, layout); };
    q = rows(), dout = rows(), out = rows(), dq = rows();
    k = columns(), v = columns(), dk = columns(), dv = columns();
    lse.assign(static_cast<std::size_t>(s.batch * s.query_heads * s.rows), std::nanf(""));
    Random random(seed);
    for (Tensor* t : {&q, &k, &v, &dout}) t->fill_normal(random);
  }

  [[nodiscard]] ForwardArguments forward_arguments() {
    return {.shape = shape,
            .mask = {&mask, map},
            .q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .out = out.view(),
            .lse = lse.data(),
            .scale = scale,
            .threads = threads};
  }
  [[nodiscard]] BackwardArguments backward_arguments() {
    return {.shape = shape,
            .mask = {&mask, map},
            .q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .out = out.view(),
            .dout = dout.view(),
            .lse = lse.data(),
            .dq = dq.view(),
            .dk = dk.view(),
            .dv = dv.view(),
            .scale = scale,
            .threads = threads};
  }
  void run() {
    forward(forward_arguments());
    backward(backward_arguments());
  }
  [[nodiscard]] float lse_at(std::int64_t b, std::int64_t h, std::int64_t row) const {
    return lse[static_cast<std::size_t>((b * shape.query_heads + h) * shape.rows + row)];
  }
  /// Every byte of the five results, for bitwise comparison.
  [[nodiscard]] std::vector<std::uint8_t> result_bytes() const {
    std::vector<std::uint8_t> all;
    for (const Tensor* t : {&out, &dq, &dk, &dv}) all.insert(all.end(), t->bytes().begin(), t->bytes().end());
    const auto* first = reinterpret_cast<const std::uint8_t*>(lse.data());
    all.insert(all.end(), first, first + lse.size() * sizeof(float));
    return all;
  }
};

inline void expect_close(const char* name, std::span<const double> got, const cpu::reference::Values& exact,
                         const cpu::reference::Values& naive, DType dtype) {
  const double allowed = tolerance(exact, naive, dtype);
  const Deviation worst = deviation(got, exact.values);
  EXPECT_LE(worst.error, allowed) << name << " at flat index " << worst.index << ": got " << worst.got << ", expected "
                                  << worst.expected;
}

/// Compares O, LSE, dQ, dK and dV of a call that has run with the oracle, within derived tolerances.
inline void expect_matches_oracle(Call& call) {
  using cpu::reference::Precision;
  const auto problem = cpu::reference::problem_of(call.backward_arguments());
  const auto exact = cpu::reference::forward(problem, Precision::float64, 2);
  const auto naive = cpu::reference::forward(problem, Precision::input, 2);
  const auto exact_gradients = cpu::reference::backward(problem, Precision::float64, 2);
  const auto naive_gradients = cpu::reference::backward(problem, Precision::input, 2);
  const DType dtype = call.q.dtype();
  expect_close("out", call.out.values(), exact.out, naive.out, dtype);
  expect_close("lse", std::vector<double>(call.lse.begin(), call.lse.end()), exact.lse, naive.lse, DType::f32);
  expect_close("dq", call.dq.values(), exact_gradients.dq, naive_gradients.dq, dtype);
  expect_close("dk", call.dk.values(), exact_gradients.dk, naive_gradients.dk, dtype);
  expect_close("dv", call.dv.values(), exact_gradients.dv, naive_gradients.dv, dtype);
}

/// Q = 0 makes every visible score 0, so LSE is ln(number of visible columns): one wrong cell shows.
inline void expect_count_probe(Call& call) {
  call.q.fill(0);
  forward(call.forward_arguments());
  const std::int64_t per_mask = call.shape.query_heads / call.mask.shape().heads;
  for (std::int64_t b = 0; b < call.shape.batch; ++b) {
    for (std::int64_t h = 0; h < call.shape.query_heads; ++h) {
      const auto counts = call.mask.row_counts(b, h / per_mask);
      for (std::int64_t i = 0; i < call.shape.rows; ++i) {
        const auto seen = counts[static_cast<std::size_t>(i)];
        ASSERT_EQ(std::llround(std::exp(static_cast<double>(call.lse_at(b, h, i)))), seen)
            << "batch " << b << " head " << h << " row " << i;
      }
    }
  }
}

}  // namespace flashmask::testing
