// Vectors of the instruction set a file is compiled for, through the GCC and clang vector extensions.
//
// Everything under isa/ has internal linkage and uses no function of the standard library: these files are compiled
// with instruction-set flags, and a shared inline function would leak such code into the rest of the program.
#pragma once

#include <cstdint>

namespace flashmask::cpu::isa {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Vec = float __attribute__((vector_size(kLanes * 4)));
using IntVec = std::int32_t __attribute__((vector_size(kLanes * 4)));
/// A vector at any address (clang drops `aligned` on a vector alias, but honours `packed`).
template <typename V>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
  V value;
};

#define FLASHMASK_ISA_INLINE [[gnu::always_inline]] inline

FLASHMASK_ISA_INLINE Vec load(const float* p) {
  return reinterpret_cast<const Unaligned<Vec>*>(p)->value;
}
FLASHMASK_ISA_INLINE IntVec load(const std::int32_t* p) {
  return reinterpret_cast<const Unaligned<IntVec>*>(p)->value;
}
FLASHMASK_ISA_INLINE void store(float* p, Vec v) {
  reinterpret_cast<Unaligned<Vec>*>(p)->value = v;
}
// Scalar with vector operations broadcast; x - 0 is x for every x. (A loop over elements becomes one insert an element.)
FLASHMASK_ISA_INLINE Vec splat(float x) { return x - Vec{}; }
FLASHMASK_ISA_INLINE IntVec splat(std::int32_t x) { return x - IntVec{}; }
/// 0, 1, 2, ...
FLASHMASK_ISA_INLINE IntVec iota() {
  IntVec v{};
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}
FLASHMASK_ISA_INLINE Vec maximum(Vec a, Vec b) {
  return a > b ? a : b;
}

constexpr float kInfinity = __builtin_inff();

/// 2^x for x <= 127 within 1.5 ulp; 0 below -126 (so for -infinity); NaN stays NaN.
FLASHMASK_ISA_INLINE Vec exp2(Vec x) {
  const Vec clamped = x < -126.0F ? splat(-126.0F) : x;
  const Vec shifted = clamped + 12582912.0F;  // 1.5 * 2^23: rounds to an integer, held in the low bits
  const Vec fraction = clamped - (shifted - 12582912.0F);
  // Remez on [-1/2, 1/2] for relative error with the constant held at 1: 2.6e-9 before rounding.
  Vec p = splat(0.000155946778F);
  p = p * fraction + 0.00134066434F;
  p = p * fraction + 0.00961769279F;
  p = p * fraction + 0.0555031039F;
  p = p * fraction + 0.240226522F;
  p = p * fraction + 0.693147242F;
  p = p * fraction + 1.0F;
  // The added constant's own low bits are zero, so the shift leaves the biased exponent alone in its place.
  const IntVec exponent = (__builtin_bit_cast(IntVec, shifted) + 127) << 23;
  const Vec result = p * __builtin_bit_cast(Vec, exponent);
  return x < -126.0F ? Vec{} : result;
}

}  // namespace
}  // namespace flashmask::cpu::isa
