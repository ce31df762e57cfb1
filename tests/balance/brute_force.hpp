// The optimum by complete enumeration, for instances of at most about 16 chunks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace flashmask::test {

/// Smallest possible peak when rank r takes exactly counts[r] chunks.
class BruteForce {
 public:
  BruteForce(std::vector<std::int64_t> loads, std::vector<std::int32_t> counts)
      : loads_(std::move(loads)), left_(std::move(counts)), sums_(left_.size(), 0) {
    std::sort(loads_.rbegin(), loads_.rend());
  }
  std::int64_t optimum() {
    place(0, 0);
    return best_;
  }

 private:
  void place(std::size_t i, std::int64_t peak) {
    if (peak >= best_) return;
    if (i == loads_.size()) {
      best_ = peak;
      return;
    }
    for (std::size_t r = 0; r < sums_.size(); ++r) {
      if (left_[r] == 0) continue;
      bool twin = false;  // an equal rank was tried already
      for (std::size_t q = 0; q < r && !twin; ++q) twin = left_[q] == left_[r] && sums_[q] == sums_[r];
      if (twin) continue;
      --left_[r];
      sums_[r] += loads_[i];
      place(i + 1, std::max(peak, sums_[r]));
      sums_[r] -= loads_[i];
      ++left_[r];
    }
  }

  std::vector<std::int64_t> loads_;
  std::vector<std::int32_t> left_;
  std::vector<std::int64_t> sums_;
  std::int64_t best_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace flashmask::test
