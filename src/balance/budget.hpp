// How much a search may still do: steps always, the clock only when the caller asked for it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace flashmask::balancing {

/// A moment of a clock; tests hand in a clock of their own.
class Deadline {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Now = Time (*)();
  explicit Deadline(Time at, Now now = std::chrono::steady_clock::now) : at_(at), now_(now) {}

  [[nodiscard]] bool passed() const { return now_() >= at_; }
  /// What is left of the time; not negative.
  [[nodiscard]] std::chrono::nanoseconds left() const {
    const Time now = now_();
    return now < at_ ? std::chrono::nanoseconds(at_ - now) : std::chrono::nanoseconds(0);
  }
  /// The moment halfway from now to this one; this one where it has passed.
  [[nodiscard]] Deadline halfway() const {
    const Time now = now_();
    return now < at_ ? Deadline(now + (at_ - now) / 2, now_) : *this;
  }

 private:
  Time at_;
  Now now_;
};

/// Counted effort. Without a deadline nothing here depends on time.
class Budget {
 public:
  Budget(std::int64_t steps, std::optional<Deadline> deadline) : left_(steps), deadline_(deadline) {}

  /// Takes `steps`; false once nothing is left or the deadline passed.
  bool take(std::int64_t steps = 1) {
    left_ -= steps;
    if (deadline_ && (unchecked_ += steps) >= 32) {
      unchecked_ = 0;
      if (deadline_->passed()) left_ = -1, cut_short_ = true;
    }
    return left_ >= 0;
  }
  [[nodiscard]] bool over() const { return left_ <= 0; }
  [[nodiscard]] std::int64_t left() const { return left_; }
  /// Whether the deadline ended it, and not the steps.
  [[nodiscard]] bool cut_short() const { return cut_short_; }
  [[nodiscard]] const std::optional<Deadline>& deadline() const { return deadline_; }

 private:
  std::int64_t left_;
  std::optional<Deadline> deadline_;
  std::int64_t unchecked_ = 0;
  bool cut_short_ = false;
};

}  // namespace flashmask::balancing
