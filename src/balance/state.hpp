// An assignment in the making: the chunks of every rank in fixed slots, with rank loads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "balance/instance.hpp"

namespace flashmask::balancing {

/// Small deterministic generator (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ULL); }
  /// Uniform in [0, bound), bound in [1, 2^32].
  std::uint32_t below(std::uint64_t bound) { return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32); }

 private:
  std::uint64_t state_;
};

/// Slots [offset(r), offset(r) + counts[r]) hold the chunks of rank r in any order.
struct State {
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> offsets;  ///< ranks + 1
  std::vector<std::int64_t> loads;    ///< normalised, by rank

  State() = default;
  explicit State(const Instance& in) : slots(in.loads.size(), -1), offsets(1, 0), loads(in.counts.size(), 0) {
    offsets.reserve(in.counts.size() + 1);
    for (const std::int32_t k : in.counts) offsets.push_back(offsets.back() + k);
  }
  /// From the rank of every chunk; counts must match.
  State(const Instance& in, std::span<const std::int32_t> rank_of) : State(in) {
    std::vector<std::int32_t> next(offsets.begin(), offsets.end() - 1);
    for (std::size_t c = 0; c < rank_of.size(); ++c) {
      const std::size_t r = static_cast<std::size_t>(rank_of[c]);
      slots[static_cast<std::size_t>(next[r]++)] = static_cast<std::int32_t>(c);
      loads[r] += in.loads[c];
    }
  }

  [[nodiscard]] std::span<std::int32_t> rank(std::int64_t r) {
    const std::size_t begin = static_cast<std::size_t>(offsets[static_cast<std::size_t>(r)]);
    return std::span(slots).subspan(begin, static_cast<std::size_t>(offsets[static_cast<std::size_t>(r) + 1]) - begin);
  }
  [[nodiscard]] std::span<const std::int32_t> rank(std::int64_t r) const {
    const std::size_t begin = static_cast<std::size_t>(offsets[static_cast<std::size_t>(r)]);
    return std::span(slots).subspan(begin, static_cast<std::size_t>(offsets[static_cast<std::size_t>(r) + 1]) - begin);
  }
  /// Largest time over ranks: the smallest target this assignment meets.
  [[nodiscard]] std::int64_t peak(const Instance& in) const {
    if (in.speeds.empty()) return loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
    std::int64_t peak = 0;
    for (std::size_t r = 0; r < loads.size(); ++r) {
      peak = std::max(peak, in.time(static_cast<std::int64_t>(r), loads[r]));
    }
    return peak;
  }
  [[nodiscard]] std::vector<std::int32_t> rank_of() const {
    std::vector<std::int32_t> out(slots.size());
    for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
      for (std::int32_t s = offsets[r]; s < offsets[r + 1]; ++s) {
        out[static_cast<std::size_t>(slots[static_cast<std::size_t>(s)])] = static_cast<std::int32_t>(r);
      }
    }
    return out;
  }
};

}  // namespace flashmask::balancing
