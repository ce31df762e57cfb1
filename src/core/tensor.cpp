#include "flashmask/tensor.hpp"

namespace flashmask {

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
  }
  return "unknown";
}

std::size_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
}

std::array<std::int64_t, 4> bshd_strides(std::int64_t positions, std::int64_t heads, std::int64_t dim) {
  return {positions * heads * dim, heads * dim, dim, 1};
}

std::array<std::int64_t, 4> bhsd_strides(std::int64_t positions, std::int64_t heads, std::int64_t dim) {
  return {positions * heads * dim, dim, positions * dim, 1};
}

}  // namespace flashmask
