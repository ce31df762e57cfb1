// A workload reduced to what the search needs: normalised loads, chunk counts and capacities.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

__extension__ typedef __int128 Int128;  // loads times speeds exceed 64 bits on the way

/// ceil(a / b) for a >= 0, b > 0.
constexpr std::int64_t ceil_div(Int128 a, Int128 b) {
  return static_cast<std::int64_t>((a + b - 1) / b);
}

/// Every bit of the result depends on every bit of `z` (the finaliser of splitmix64).
constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// Whether loads that sum to `total`, at most kMostLoad, may be planned on ranks of these speeds: the slowest one would
/// take at most kMostLoad for everything, so every time fits.
bool sum_fits(std::int64_t total, std::span<const std::int64_t> speeds);
/// Throws invalid_argument unless it does; `loads` is what the caller calls the loads.
void check_sum(std::string_view loads, std::int64_t total, std::span<const std::int64_t> speeds);

/// Throws invalid_argument naming the field unless `work` could have counted loads in `unit`.
void check_tile_work(WorkUnit unit, const std::optional<TileWork>& work);

/// The same relative speeds as whole numbers as small as they can be; none where all ranks are equal, as that is the
/// problem without speeds, which has more arguments for a bound.
std::vector<std::int64_t> lowest_terms(std::vector<std::int64_t> speeds);

/// Ranks from the fastest to the slowest, equal ones by number: 0 .. ranks - 1 where `speeds` is empty. Position i of
/// this order is place i; everything the search does is by place, so how ranks are numbered cannot change a peak.
std::vector<std::int32_t> rank_at_place(std::int64_t ranks, std::span<const std::int64_t> speeds);

/// Chunks of every place: floor(chunks / ranks), one more on the first chunks % ranks.
std::vector<std::int32_t> chunk_counts(std::int64_t chunks, std::int64_t ranks);

/// Loads with the common offset and divisor taken out. With equal counts and speeds
/// load = scale * normalised + offset * count; otherwise offset = 0, and with speeds scale = 1 too. What is called a
/// rank from here on is a place of rank_at_place: counts never grow from one to the next.
struct Instance {
  std::vector<std::int64_t> loads;    ///< normalised, by chunk
  std::vector<std::int32_t> counts;   ///< by rank, descending
  std::vector<std::int64_t> speeds;   ///< by rank; empty for equal ones
  std::vector<std::int32_t> by_load;  ///< chunks, heaviest first, ties by number
  std::int64_t fastest = 1;
  std::int64_t scale = 1;
  std::int64_t offset = 0;
  std::int64_t total = 0;  ///< of the normalised loads

  [[nodiscard]] std::int64_t ranks() const { return static_cast<std::int64_t>(counts.size()); }
  [[nodiscard]] std::int64_t chunks() const { return static_cast<std::int64_t>(loads.size()); }
  [[nodiscard]] bool equal_counts() const { return counts.front() == counts.back(); }
  /// Largest normalised load of a rank that keeps its time within `target`.
  [[nodiscard]] std::int64_t capacity(std::int64_t rank, std::int64_t target) const {
    if (speeds.empty()) return target;
    return static_cast<std::int64_t>(Int128{target} * speeds[static_cast<std::size_t>(rank)] / fastest);
  }
  /// Time of a rank with a normalised load: the smallest target that admits it.
  [[nodiscard]] std::int64_t time(std::int64_t rank, std::int64_t load) const {
    if (speeds.empty()) return load;
    return ceil_div(Int128{load} * fastest, speeds[static_cast<std::size_t>(rank)]);
  }
  /// A normalised target in the units of the workload, and the largest normalised target within an original one.
  [[nodiscard]] std::int64_t original(std::int64_t target) const { return scale * target + offset * counts.front(); }
  [[nodiscard]] std::int64_t normalised(std::int64_t target) const {
    return (target - offset * counts.front()) / scale;
  }
};

/// Counts must descend and have as many entries as speeds, where those are given.
Instance make_instance(std::vector<std::int64_t> loads, std::vector<std::int32_t> counts,
                       std::vector<std::int64_t> speeds);

}  // namespace flashmask::balancing
