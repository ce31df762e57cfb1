// How kernels are timed (docs/forward.md): the burst protocol of the peers' table, and sustained as training sees it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "sm90/device/memory.hpp"

namespace flashmask::sm90 {

/// Milliseconds of `count` launches queued back to back, each between two events.
inline std::vector<double> time_launches(const Stream& stream, const std::function<void()>& launch, int count) {
  std::vector<Event> events(static_cast<std::size_t>(count) + 1);
  events[0].record(stream);
  for (std::size_t i = 1; i < events.size(); ++i) {
    launch();
    events[i].record(stream);
  }
  stream.synchronise();
  std::vector<double> milliseconds;
  for (std::size_t i = 1; i < events.size(); ++i) milliseconds.push_back(events[i].since(events[i - 1]));
  return milliseconds;
}

/// An idle time lets the clock recover, then `warmups` launches, then `repeats`: 0 takes 9, or 5 where one takes over
/// 40 ms.
inline std::vector<double> time_burst(const Stream& stream, const std::function<void()>& launch, int warmups,
                                      int repeats) {
  constexpr std::chrono::milliseconds idle(500);
  constexpr double long_launch = 40;
  std::this_thread::sleep_for(idle);
  double longest = 0;
  for (const double ms : time_launches(stream, launch, warmups)) longest = std::max(longest, ms);
  if (repeats == 0) repeats = longest > long_launch ? 5 : 9;
  return time_launches(stream, launch, repeats);
}

/// Milliseconds a launch in each of six batches of at least 45 ms without idle, after two more in which the clock
/// falls.
inline std::vector<double> time_sustained(const Stream& stream, const std::function<void()>& launch, double each) {
  constexpr double batch_milliseconds = 45;
  constexpr int falling = 2, batches = 6;
  constexpr double shortest = 1e-3;  // also of a call that launches nothing
  const int launches = static_cast<int>(std::ceil(batch_milliseconds / std::max(each, shortest)));
  const auto batch = [&] {
    for (int i = 0; i < launches; ++i) launch();
  };
  std::vector<double> milliseconds = time_launches(stream, batch, falling + batches);
  milliseconds.erase(milliseconds.begin(), milliseconds.begin() + falling);
  for (double& ms : milliseconds) ms /= launches;
  return milliseconds;
}

}  // namespace flashmask::sm90
