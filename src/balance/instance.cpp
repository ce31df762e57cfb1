#include "balance/instance.hpp"

#include <algorithm>
#include <numeric>

#include "core/check.hpp"

namespace flashmask::balancing {
namespace {

/// Takes (loads - offset) / gcd in place.
void normalise(Instance& in) {
  const bool shift = in.speeds.empty() && in.equal_counts();
  if (!in.speeds.empty() || in.loads.empty()) return;
  in.offset = shift ? *std::min_element(in.loads.begin(), in.loads.end()) : 0;
  std::int64_t gcd = 0;
  for (const std::int64_t w : in.loads) {
    gcd = std::gcd(gcd, w - in.offset);
    if (gcd == 1) break;
  }
  in.scale = std::max<std::int64_t>(gcd, 1);
  if (in.scale == 1) {
    for (std::int64_t& w : in.loads) w -= in.offset;
  } else {
    for (std::int64_t& w : in.loads) w = (w - in.offset) / in.scale;
  }
}

}  // namespace

bool sum_fits(std::int64_t total, std::span<const std::int64_t> speeds) {
  if (speeds.empty()) return true;  // loads are summed one by one, each checked against what is left
  const auto [slowest, fastest] = std::minmax_element(speeds.begin(), speeds.end());
  return Int128{total} * *fastest / *slowest <= kMostLoad;
}

void check_sum(std::string_view loads, std::int64_t total, std::span<const std::int64_t> speeds) {
  if (sum_fits(total, speeds)) return;
  const auto [slowest, fastest] = std::minmax_element(speeds.begin(), speeds.end());
  core::fail(ErrorCode::invalid_argument,
             "{} sum to {}: times fastest / slowest = {} / {} of speeds exceeds 2^62; use a coarser unit", loads, total,
             *fastest, *slowest);
}

std::vector<std::int64_t> lowest_terms(std::vector<std::int64_t> speeds) {
  std::int64_t common = 0;
  for (const std::int64_t s : speeds) common = std::gcd(common, s);
  if (std::all_of(speeds.begin(), speeds.end(), [common](std::int64_t s) { return s == common; })) return {};
  for (std::int64_t& s : speeds) s /= common;
  return speeds;
}

std::vector<std::int32_t> rank_at_place(std::int64_t ranks, std::span<const std::int64_t> speeds) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  if (!speeds.empty()) {
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return speeds[static_cast<std::size_t>(a)] > speeds[static_cast<std::size_t>(b)];
    });
  }
  return order;
}

std::vector<std::int32_t> chunk_counts(std::int64_t chunks, std::int64_t ranks) {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(ranks), static_cast<std::int32_t>(chunks / ranks));
  for (std::int64_t r = 0; r < chunks % ranks; ++r) ++counts[static_cast<std::size_t>(r)];
  return counts;
}

Instance make_instance(std::vector<std::int64_t> loads, std::vector<std::int32_t> counts,
                       std::vector<std::int64_t> speeds) {
  Instance in;
  in.loads = std::move(loads);
  in.counts = std::move(counts);
  in.speeds = std::move(speeds);
  if (!in.speeds.empty()) in.fastest = *std::max_element(in.speeds.begin(), in.speeds.end());
  normalise(in);
  in.total = std::accumulate(in.loads.begin(), in.loads.end(), std::int64_t{0});
  in.by_load.resize(in.loads.size());
  std::iota(in.by_load.begin(), in.by_load.end(), 0);
  std::stable_sort(in.by_load.begin(), in.by_load.end(), [&](std::int32_t a, std::int32_t b) {
    return in.loads[static_cast<std::size_t>(a)] > in.loads[static_cast<std::size_t>(b)];
  });
  return in;
}

}  // namespace flashmask::balancing
