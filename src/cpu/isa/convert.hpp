// Between strided tensors of any dtype and float32 panels.
#pragma once

#include "core/dtype.hpp"
#include "cpu/isa/vector.hpp"
#include "cpu/kernels.hpp"

namespace flashmask::cpu::isa {
namespace {

struct F32 {
  using Storage = float;
  FLASHMASK_ISA_INLINE static float widen(float x) { return x; }
  FLASHMASK_ISA_INLINE static float narrow(float x) { return x; }
};
struct F16 {
  using Storage = std::uint16_t;
  FLASHMASK_ISA_INLINE static float widen(std::uint16_t x) { return core::f16_to_float(x); }
  FLASHMASK_ISA_INLINE static std::uint16_t narrow(float x) { return core::float_to_f16(x); }
};
struct Bf16 {
  using Storage = std::uint16_t;
  FLASHMASK_ISA_INLINE static float widen(std::uint16_t x) { return core::bf16_to_float(x); }
  FLASHMASK_ISA_INLINE static std::uint16_t narrow(float x) { return core::float_to_bf16(x); }
};

template <typename Format>
void widen_as(const Strided& src, std::int64_t rows, std::int64_t columns, float* dst, std::int64_t stride) {
  const auto* data = static_cast<const typename Format::Storage*>(src.data);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto* from = data + r * src.row_stride;
    float* to = dst + r * stride;
    if (src.column_stride == 1) {
      for (std::int64_t c = 0; c < columns; ++c) to[c] = Format::widen(from[c]);
    } else {
      for (std::int64_t c = 0; c < columns; ++c) to[c] = Format::widen(from[c * src.column_stride]);
    }
  }
}

template <typename Format>
void widen_transposed_as(const Strided& src, std::int64_t rows, std::int64_t columns, float* dst, std::int64_t lanes) {
  const auto* data = static_cast<const typename Format::Storage*>(src.data);
  for (std::int64_t c = 0; c < columns; ++c) {
    const auto* from = data + c * src.column_stride;
    float* to = dst + c * kStrip;
    for (std::int64_t r = 0; r < rows; ++r) to[r] = Format::widen(from[r * src.row_stride]);
    for (std::int64_t r = rows; r < lanes; ++r) to[r] = 0;
  }
}

template <typename Format>
void narrow_transposed_as(const float* src, const float* factor, std::int64_t rows, std::int64_t columns,
                          const Strided& dst) {
  auto* data = static_cast<typename Format::Storage*>(dst.data);
  for (std::int64_t r = 0; r < rows; ++r) {
    auto* to = data + r * dst.row_stride;
    // Factor 0 means "exactly zero": a row that sees nothing must not pick up a NaN of a hidden column.
    for (std::int64_t c = 0; c < columns; ++c) {
      to[c * dst.column_stride] = Format::narrow(factor[r] == 0 ? 0.0F : src[c * kStrip + r] * factor[r]);
    }
  }
}

void widen(Strided src, std::int64_t rows, std::int64_t columns, float* dst, std::int64_t stride) {
  switch (src.dtype) {
    case DType::f32:
      return widen_as<F32>(src, rows, columns, dst, stride);
    case DType::f16:
      return widen_as<F16>(src, rows, columns, dst, stride);
    case DType::bf16:
      return widen_as<Bf16>(src, rows, columns, dst, stride);
  }
}

void widen_transposed(Strided src, std::int64_t rows, std::int64_t columns, float* dst, std::int64_t lanes) {
  switch (src.dtype) {
    case DType::f32:
      return widen_transposed_as<F32>(src, rows, columns, dst, lanes);
    case DType::f16:
      return widen_transposed_as<F16>(src, rows, columns, dst, lanes);
    case DType::bf16:
      return widen_transposed_as<Bf16>(src, rows, columns, dst, lanes);
  }
}

void narrow_transposed(const float* src, const float* factor, std::int64_t rows, std::int64_t columns, Strided dst) {
  switch (dst.dtype) {
    case DType::f32:
      return narrow_transposed_as<F32>(src, factor, rows, columns, dst);
    case DType::f16:
      return narrow_transposed_as<F16>(src, factor, rows, columns, dst);
    case DType::bf16:
      return narrow_transposed_as<Bf16>(src, factor, rows, columns, dst);
  }
}

/// x * 0 is 0 for finite x and NaN otherwise, and a sum that met a NaN is one.
bool all_finite(const float* data, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  constexpr std::int64_t kStep = 4 * kLanes;
  Vec sums[4] = {};
  float rest = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = data + r * stride;
    std::int64_t c = 0;
    for (; c + kStep <= columns; c += kStep) {
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) sums[n] += load(row + c + n * kLanes) * 0.0F;
    }
    for (; c + kLanes <= columns; c += kLanes) sums[0] += load(row + c) * 0.0F;
    for (; c < columns; ++c) rest += row[c] * 0.0F;
  }
  const Vec sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int lane = 0; lane < kLanes; ++lane) rest += sum[lane];
  return rest == 0;
}

}  // namespace
}  // namespace flashmask::cpu::isa
