// How much a search may still do: steps always, the clock only when the caller asked for it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace flashmask::balancing {

/// Counted effort. Without a deadline nothing here depends on time.
class Budget {
 public:
  using Clock = std::chrono::steady_clock;
  Budget(std::int64_t steps, std::optional<Clock::time_point> deadline) : left_(steps), deadline_(deadline) {}

  /// Takes `steps`; false once nothing is left or the deadline passed.
  bool take(std::int64_t steps = 1) {
    left_ -= steps;
    if (deadline_ && (unchecked_ += steps) >= 32) {
      unchecked_ = 0;
      if (Clock::now() >= *deadline_) left_ = -1;
    }
    return left_ >= 0;
  }
  [[nodiscard]] bool over() const { return left_ <= 0; }
  [[nodiscard]] std::int64_t left() const { return left_; }
  [[nodiscard]] bool late() const { return deadline_ && Clock::now() >= *deadline_; }
  [[nodiscard]] const std::optional<Clock::time_point>& deadline() const { return deadline_; }

 private:
  std::int64_t left_;
  std::optional<Clock::time_point> deadline_;
  std::int64_t unchecked_ = 0;
};

}  // namespace flashmask::balancing
