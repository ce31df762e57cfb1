// One attention problem with its buffers: random inputs, outputs poisoned with NaN before every run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "flashmask/attention.hpp"

namespace flashmask::app {

/// A contiguous BSHD tensor in host memory.
class Tensor {
 public:
  Tensor(std::int64_t batch, std::int64_t positions, std::int64_t heads, std::int64_t dim, DType dtype);

  /// Roughly normal values with standard deviation 1; the same for a seed whatever the dtype, up to rounding.
  void fill_random(std::uint64_t seed, std::uint64_t stream);
  void fill_zero();
  /// Zeroes all components of every head but one.
  void keep_component(std::int64_t dim);
  /// Every element a NaN.
  void poison();

  [[nodiscard]] TensorView view() const { return {bytes_.data(), dtype_, strides_}; }
  [[nodiscard]] MutableTensorView view() { return {bytes_.data(), dtype_, strides_}; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  /// Element at (batch, position, head, dim) as a double.
  [[nodiscard]] double at(std::int64_t batch, std::int64_t position, std::int64_t head, std::int64_t dim) const;
  /// Overwrites one element.
  void set(std::int64_t batch, std::int64_t position, std::int64_t head, std::int64_t dim, double value);

 private:
  void store(std::int64_t index, float value);
  [[nodiscard]] std::int64_t index(std::int64_t batch, std::int64_t position, std::int64_t head,
                                   std::int64_t dim) const;

  std::array<std::int64_t, 4> strides_;
  std::int64_t dim_;
  DType dtype_;
  std::int64_t size_;
  std::vector<std::uint8_t> bytes_;
};

/// Inputs and outputs of one forward and backward. Borrows the mask and the map.
struct Problem {
  Problem(const AttentionShape& problem_shape, DType dtype, const ColumnMask& mask, const TileMap& map,
          int thread_count, std::uint64_t seed);

  /// Poison the outputs, run, and return the milliseconds.
  double run_forward();
  double run_backward();
  [[nodiscard]] ForwardArguments forward_arguments();
  [[nodiscard]] BackwardArguments backward_arguments();

  /// What runs the calls: one device unless replaced.
  std::function<void(const ForwardArguments&)> forward_engine = [](const ForwardArguments& a) { forward(a); };
  std::function<void(const BackwardArguments&)> backward_engine = [](const BackwardArguments& a) { backward(a); };

  /// What the engine rounds P and dS to before it multiplies them; the probe allows for it.
  DType weights = DType::f32;

  AttentionShape shape;
  MaskArgument mask;
  int threads;
  Tensor q, k, v, dout, out, dq, dk, dv;
  std::vector<float> lse;
};

/// Floating point operations of a forward by the visible cells of every query head, and by the 128 x 128 tiles that are
/// not masked (the published convention); a backward counts 2.5 times as many.
struct Work {
  double element = 0;
  double tile = 0;
};
Work work_of(const AttentionShape& shape, const ColumnMask& mask);
inline constexpr double kBackwardFactor = 2.5;

/// "bf16", "fp16" or "f32".
DType parse_dtype(const std::string& text);
/// "8:2" (query heads : KV heads) or "8" (as many KV heads). Throws naming --heads.
void parse_heads(const std::string& text, AttentionShape& shape);

}  // namespace flashmask::app
