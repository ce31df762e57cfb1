// Seeded random masks and shapes for property tests. Sizes grow with `step`, so the first failure is a small one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "flashmask/mask.hpp"
#include "flashmask/tile.hpp"

namespace flashmask::testing {

/// Uniform integers from a 64-bit Mersenne twister, written out so that a seed means the same with every library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// Uniform in [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return integer(0, n - 1) == 0; }
  /// Roughly normal (sum of uniforms), mean 0, variance 1.
  float normal() {
    double sum = 0;
    for (int i = 0; i < 6; ++i) sum += static_cast<double>(engine_() >> 11) * 0x1.0p-53;
    return static_cast<float>((sum - 3.0) * 1.4142135623730951);
  }

 private:
  std::mt19937_64 engine_;
};

/// Any four int32 values: mostly near the legal range, sometimes the extremes.
inline std::int32_t wild_row(Random& random, std::int64_t rows) {
  switch (random.integer(0, 15)) {
    case 0:
      return std::numeric_limits<std::int32_t>::max();
    case 1:
      return std::numeric_limits<std::int32_t>::min();
    case 2:
      return 0;
    case 3:
      return static_cast<std::int32_t>(rows);
    default:
      return static_cast<std::int32_t>(random.integer(-3, rows + 3));
  }
}

/// Columns of one (batch, head) in one of several manners: independent wild values, runs of equal columns (documents),
/// diagonals with windows, or mostly empty.
inline void fill_random_head(ColumnMask& mask, std::int64_t batch, std::int64_t head, Random& random) {
  const std::int64_t rows = mask.shape().rows;
  const std::int64_t delta = mask.shape().columns - rows;
  const std::int64_t manner = random.integer(0, 4);
  const std::int64_t window = random.integer(0, rows + 1);
  HiddenRows current{};
  for (std::int64_t column = 0; column < mask.shape().columns; ++column) {
    const auto diagonal = static_cast<std::int32_t>(std::clamp<std::int64_t>(column - delta, 0, rows));
    const HiddenRows wild{wild_row(random, rows), wild_row(random, rows), wild_row(random, rows),
                          wild_row(random, rows)};
    switch (manner) {
      case 0:
        current = wild;
        break;
      case 1:  // blocks of equal columns
        if (column == 0 || random.one_in(7)) current = wild;
        break;
      case 2:  // causal, with documents of their own end
        if (column == 0 || random.one_in(9)) current = wild;
        current.uts = 0;
        current.ute = diagonal;
        break;
      case 3:  // two-sided window
        current = {static_cast<std::int32_t>(std::min(diagonal + window + 1, rows)), static_cast<std::int32_t>(rows), 0,
                   static_cast<std::int32_t>(diagonal - window)};
        break;
      default:
        current = random.one_in(12) ? wild : HiddenRows{};
        break;
    }
    mask.set(batch, head, column, current);
  }
}

/// A mask of the given shape; canonical or as drawn.
inline ColumnMask random_mask(const MaskShape& shape, Random& random) {
  ColumnMask mask(shape);
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t head = 0; head < shape.heads; ++head) fill_random_head(mask, batch, head, random);
  }
  if (random.one_in(2)) mask.canonicalise();
  return mask;
}

/// Extents up to `limit`, often rows == columns, now and then zero.
inline MaskShape random_shape(Random& random, std::int64_t limit) {
  MaskShape shape{random.integer(1, 2), random.integer(1, 3), random.integer(1, limit), 0};
  shape.columns = random.one_in(2) ? shape.rows : random.integer(1, limit);
  if (random.one_in(40)) shape.rows = 0;
  if (random.one_in(40)) shape.columns = 0;
  return shape;
}

/// Text that rebuilds a failing mask by hand.
inline std::string describe(const ColumnMask& mask) {
  std::ostringstream out;
  const MaskShape& s = mask.shape();
  out << "mask batch " << s.batch << " heads " << s.heads << " rows " << s.rows << " columns " << s.columns;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      out << "\n  (" << b << ',' << h << ") {lts,lte,uts,ute}:";
      for (std::int64_t c = 0; c < std::min<std::int64_t>(s.columns, 64); ++c) {
        const HiddenRows r = mask.at(b, h, c);
        out << " {" << r.lts << ',' << r.lte << ',' << r.uts << ',' << r.ute << '}';
      }
    }
  }
  return out.str();
}

}  // namespace flashmask::testing
