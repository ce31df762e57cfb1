// Random numbers that depend on nothing but their key, so a mask is the same on every platform and for every shape.
#pragma once

#include <cstdint>

namespace flashmask::mask {

struct DrawKey {
  std::uint64_t seed = 0;
  std::int64_t batch = 0, head = 0, index = 0;
};

/// Uniform in [0, count), count >= 1; the bias is below count / 2^64.
inline std::int64_t draw_below(std::int64_t count, const DrawKey& key) {
  std::uint64_t x = key.seed;
  for (const std::int64_t part : {key.batch, key.head, key.index}) {
    x = (x ^ static_cast<std::uint64_t>(part)) + 0x9E3779B97F4A7C15ULL;  // splitmix64 step
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    x ^= x >> 31;
  }
  // The high word of the product scales the draw: no division, no rejection loop.
  return static_cast<std::int64_t>((static_cast<unsigned __int128>(x) * static_cast<std::uint64_t>(count)) >> 64);
}

}  // namespace flashmask::mask
