#include "core/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace flashmask::core {
namespace {

static_assert(float_to_bf16(1.0F) == 0x3f80);
static_assert(float_to_f16(1.0F) == 0x3c00);
static_assert(f16_to_float(0xc000) == -2.0F);

/// Value of a 16-bit float from its fields, by definition.
double by_definition(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

struct Format {
  int exponent_bits, mantissa_bits;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
};
const Format kFormats[] = {
    {8, 7, [](std::uint16_t x) { return bf16_to_float(x); }, [](float x) { return float_to_bf16(x); }},
    {5, 10, [](std::uint16_t x) { return f16_to_float(x); }, [](float x) { return float_to_f16(x); }}};

TEST(DType, every_16_bit_pattern_widens_exactly_and_comes_back) {
  for (const Format& f : kFormats) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto x = static_cast<std::uint16_t>(bits);
      const float wide = f.widen(x);
      const double truth = by_definition(x, f.exponent_bits, f.mantissa_bits);
      if (std::isnan(truth)) {
        ASSERT_TRUE(std::isnan(wide)) << bits;
        ASSERT_TRUE(std::isnan(f.widen(f.narrow(wide)))) << bits;
        continue;
      }
      ASSERT_EQ(wide, truth) << bits;
      ASSERT_EQ(std::signbit(wide), bits >> 15 == 1) << bits;
      ASSERT_EQ(f.narrow(wide), x) << bits;
    }
  }
}

/// Between every two neighbours: the middle goes to the even one, a hair to either side to the nearer one.
TEST(DType, narrowing_rounds_to_nearest_even_between_all_neighbours) {
  for (const Format& f : kFormats) {
    const auto infinity = static_cast<std::uint16_t>(((1 << f.exponent_bits) - 1) << f.mantissa_bits);
    for (std::uint16_t low = 0; low < infinity; ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const double a = by_definition(low, f.exponent_bits, f.mantissa_bits);
      const double step =
          low == 0 ? by_definition(1, f.exponent_bits, f.mantissa_bits)
                   : a - by_definition(static_cast<std::uint16_t>(low - 1), f.exponent_bits, f.mantissa_bits);
      // Above the largest finite value the step to "infinity" is that of the last binade.
      const double b = high == infinity ? a + step : by_definition(high, f.exponent_bits, f.mantissa_bits);
      const auto middle = static_cast<float>((a + b) / 2);
      const std::uint16_t even = low % 2 == 0 ? low : high;
      for (const float sign : {1.0F, -1.0F}) {
        const std::uint16_t bit = sign < 0 ? 0x8000 : 0;
        ASSERT_EQ(f.narrow(sign * middle), even | bit) << low;
        ASSERT_EQ(f.narrow(sign * std::nextafterf(middle, 0.0F)), low | bit) << low;
        ASSERT_EQ(f.narrow(sign * std::nextafterf(middle, std::numeric_limits<float>::infinity())), high | bit) << low;
      }
    }
    EXPECT_EQ(f.narrow(std::numeric_limits<float>::infinity()), infinity);
    EXPECT_EQ(f.narrow(std::numeric_limits<float>::max()), infinity);
    EXPECT_EQ(f.narrow(std::numeric_limits<float>::denorm_min()), 0);
  }
}

}  // namespace
}  // namespace flashmask::core
