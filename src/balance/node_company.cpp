#include "balance/node_company.hpp"

#include <algorithm>

namespace flashmask::balancing {
namespace {

constexpr std::int64_t kMostTogether = 5;                   // heavy chunks on one rank that are looked at
constexpr std::int64_t kMostCount = 64;                     // chunks of a rank: among more there is always company
constexpr std::int64_t kMostTotal = std::int64_t{1} << 56;  // kMostCount times that fits 64 bits

struct Heavy {
  std::int64_t load = 0, count = 0;
};

/// The load above target / (kMostTogether + 1) that most chunks have; heaviest first are looked at, so of equal counts
/// the heaviest.
Heavy most_frequent(const Instance& in, std::int64_t target) {
  Heavy best, run;
  for (const std::int32_t c : in.by_load) {
    const std::int64_t load = in.loads[static_cast<std::size_t>(c)];
    if (load <= target / (kMostTogether + 1)) break;
    if (load != run.load) run = {load, 0};
    if (++run.count > best.count) best = run;
  }
  return best;
}

}  // namespace

Company::Company(const Instance& in, std::int64_t target) {
  const std::int64_t ranks = in.ranks(), chunks = in.chunks(), own = chunks / ranks;
  if (!in.speeds.empty() || own > kMostCount || in.total >= kMostTotal) return;
  const auto [load, count] = most_frequent(in, target);
  if (count < 2) return;
  together_ = target / load;
  if (together_ < 1 || together_ >= own) return;
  const std::int64_t heavy = std::count_if(in.loads.begin(), in.loads.end(), [load](auto w) { return w >= load; });
  // Ranks with q of them: as many as must be, or where none must, half of those there could be.
  const std::int64_t filled = std::max(heavy - (together_ - 1) * ranks, count / together_ / 2);
  const std::int64_t light = std::min(chunks - heavy, filled * (own - together_));
  if (light <= 0) return;
  const std::int64_t mu = in.loads[static_cast<std::size_t>(in.by_load[static_cast<std::size_t>(chunks - light)])];
  need_ = std::max<std::int64_t>(0, (own - together_) * mu - (target - together_ * load));
  if (need_ == 0) return;
  prefix_.assign(1, {0, 0});
  for (const std::int64_t w : in.loads)
    prefix_.push_back(prefix_.back() + Share{w >= load, std::max<std::int64_t>(0, mu - w)});
}

}  // namespace flashmask::balancing
