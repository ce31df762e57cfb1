// Instances of the main kernel that wait to be compared with the default (docs/backward.md): the benchmark times them
// and the device tests check them, by name. A winner becomes the default, a loser is deleted.
#pragma once

#include <array>
#include <string_view>

#include "sm90/backward/instances.hpp"

namespace flashmask::sm90::backward_pass {

/// V in one buffer: 32 KB more L1 cache.
inline constexpr BackwardConfig one_value{.head_dim = 128, .bf16 = true, .accumulate_dq = true, .value_buffers = 1};
/// K and V in one buffer each: 64 KB more.
inline constexpr BackwardConfig one_key_value{
    .head_dim = 128, .bf16 = true, .accumulate_dq = true, .key_buffers = 1, .value_buffers = 1};

LaunchMain launch_one_value, launch_one_key_value;

inline constexpr std::array candidates{
    Candidate{"one_value", one_value, launch_one_value},
    Candidate{"one_key_value", one_key_value, launch_one_key_value},
};

/// nullptr: there is none of that name.
constexpr const Candidate* find_candidate(std::string_view name) {
  for (const Candidate& c : candidates) {
    if (name == c.name) return &c;
  }
  return nullptr;
}

}  // namespace flashmask::sm90::backward_pass
