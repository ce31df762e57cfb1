// bfloat16 and binary16 against float32: exact widening, narrowing by round to nearest even.
//
// Every function is always inlined and calls nothing: the CPU kernels are compiled once per instruction set, and an
// out-of-line copy made with one set must never be linked into code that runs on another. Written without branches so
// that loops over them vectorise.
#pragma once

#include <cstdint>

namespace flashmask::core {

#define FLASHMASK_DTYPE_INLINE [[gnu::always_inline]] constexpr inline

/// Exact.
FLASHMASK_DTYPE_INLINE float bf16_to_float(std::uint16_t x) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(x) << 16);
}

/// Nearest even; overflow gives infinity; a NaN stays a (quiet) NaN.
FLASHMASK_DTYPE_INLINE std::uint16_t float_to_bf16(float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
}

/// Exact, subnormals, infinities and NaNs included. The product rebiases the exponent and normalises subnormals.
FLASHMASK_DTYPE_INLINE float f16_to_float(std::uint16_t x) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(x & 0x7fffU) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000U) << 16;
  const float scaled = __builtin_bit_cast(float, magnitude) * 0x1p112F;
  const std::uint32_t finite = __builtin_bit_cast(std::uint32_t, scaled);
  const std::uint32_t special = magnitude | 0x7f800000U;  // infinity or NaN keeps its payload
  return __builtin_bit_cast(float, (magnitude >= 0x0f800000U ? special : finite) | sign);
}

/// Nearest even; from 65520 on infinity; subnormals are rounded by a float addition whose last bit is theirs.
FLASHMASK_DTYPE_INLINE std::uint16_t float_to_f16(float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t normal = (magnitude + 0xc8000fffU + ((magnitude >> 13) & 1U)) >> 13;
  const float shifted = __builtin_bit_cast(float, magnitude < 0x38800000U ? magnitude : 0U) + 0.5F;
  const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000U;
  const std::uint32_t special = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
  const std::uint32_t finite = magnitude < 0x38800000U ? subnormal : normal;
  return static_cast<std::uint16_t>((magnitude >= 0x47800000U ? special : finite) | sign);
}

#undef FLASHMASK_DTYPE_INLINE

}  // namespace flashmask::core
