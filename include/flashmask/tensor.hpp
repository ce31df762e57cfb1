// Strided views of caller-owned tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace flashmask {

enum class DType : std::uint8_t { f32, f16, bf16 };
std::string_view to_string(DType dtype);
/// Size of one element in bytes.
std::size_t size_of(DType dtype);

/// Strided view of a 4-D tensor; strides in elements, order (batch, position, head, dim). attention.hpp: allowed ones.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::array<std::int64_t, 4> strides{};
};
struct MutableTensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::array<std::int64_t, 4> strides{};
  operator TensorView() const { return {data, dtype, strides}; }  // NOLINT: a mutable view is a view
};

/// Strides of a contiguous BSHD tensor [batch][positions][heads][dim].
std::array<std::int64_t, 4> bshd_strides(std::int64_t positions, std::int64_t heads, std::int64_t dim);
/// Strides of a contiguous BHSD tensor [batch][heads][positions][dim], in BSHD order of extents.
std::array<std::int64_t, 4> bhsd_strides(std::int64_t positions, std::int64_t heads, std::int64_t dim);

}  // namespace flashmask
