#include <cmath>
#include <limits>

#include "core/check.hpp"
#include "flashmask/attention.hpp"

namespace flashmask {
namespace {

std::int64_t row_offset(const TensorView& view, std::int64_t b, std::int64_t i, std::int64_t h) {
  return b * view.strides[0] + i * view.strides[1] + h * view.strides[2];
}

/// exp(part - total), 0 for a part that saw nothing.
double weight(double part, double total) {
  return part == -std::numeric_limits<double>::infinity() ? 0.0 : std::exp(part - total);
}

double merged_lse(double a, double b) {
  const double high = a > b ? a : b;
  if (high == -std::numeric_limits<double>::infinity()) return high;
  return high + std::log(std::exp(a - high) + std::exp(b - high));
}

}  // namespace

void merge_outputs(const AttentionShape& shape, TensorView out_a, const float* lse_a, TensorView out_b,
                   const float* lse_b, MutableTensorView out, float* lse) {
  core::check(shape.batch >= 0 && shape.rows >= 0 && shape.query_heads >= 1 && shape.head_dim >= 1,
              "shape is batch {}, rows {}, query_heads {}, head_dim {}: batch and rows must not be negative, heads and "
              "head_dim positive",
              shape.batch, shape.rows, shape.query_heads, shape.head_dim);
  core::check(out_a.dtype == DType::f32 && out_b.dtype == DType::f32 && out.dtype == DType::f32,
              "merge_outputs takes f32 tensors, got {}, {} and {}: widen the parts first", to_string(out_a.dtype),
              to_string(out_b.dtype), to_string(out.dtype));
  if (shape.batch == 0 || shape.rows == 0) return;
  core::check(out_a.data != nullptr && out_b.data != nullptr && out.data != nullptr && lse_a != nullptr &&
                  lse_b != nullptr && lse != nullptr,
              "merge_outputs got a null pointer: out_a, lse_a, out_b, lse_b, out and lse are all needed");
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.query_heads; ++h) {
      for (std::int64_t i = 0; i < shape.rows; ++i) {
        const std::int64_t row = (b * shape.query_heads + h) * shape.rows + i;
        const double total = merged_lse(lse_a[row], lse_b[row]);
        const double weight_a = weight(lse_a[row], total);
        const double weight_b = weight(lse_b[row], total);
        const float* from_a = static_cast<const float*>(out_a.data) + row_offset(out_a, b, i, h);
        const float* from_b = static_cast<const float*>(out_b.data) + row_offset(out_b, b, i, h);
        float* to = static_cast<float*>(out.data) + row_offset(out, b, i, h);
        for (std::int64_t d = 0; d < shape.head_dim; ++d) {
          const double part_a = weight_a == 0 ? 0.0 : weight_a * from_a[d * out_a.strides[3]];
          const double part_b = weight_b == 0 ? 0.0 : weight_b * from_b[d * out_b.strides[3]];
          to[d * out.strides[3]] = static_cast<float>(part_a + part_b);
        }
        lse[row] = static_cast<float>(total);
      }
    }
  }
}

}  // namespace flashmask
