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

/// Sweeps of a head's CTAs stay together.
inline constexpr BackwardConfig shared_front{
    .head_dim = 128, .bf16 = true, .accumulate_dq = true, .shared_front = true};
/// One V buffer and the shared front.
inline constexpr BackwardConfig one_value_shared_front{
    .head_dim = 128, .bf16 = true, .accumulate_dq = true, .value_buffers = 1, .shared_front = true};
/// The query heads of a group spread over CTAs where there are few column blocks.
inline constexpr BackwardConfig split_groups{
    .head_dim = 128, .bf16 = true, .accumulate_dq = true, .split_groups = true};

/// The last blocks cut by rows.
inline constexpr BackwardConfig split_tail{.head_dim = 128, .bf16 = true, .accumulate_dq = true, .split_tail = true};

/// Prepare, main and convert overlap at their borders.
inline constexpr BackwardConfig dependent_launch{
    .head_dim = 128, .bf16 = true, .accumulate_dq = true, .dependent_launch = true};

LaunchMain launch_dependent, launch_one_value, launch_one_value_shared_front, launch_one_key_value, launch_shared_front,
    launch_split_groups, launch_split_tail;
LaunchCombine launch_split_groups_combine, launch_split_tail_combine;
LaunchPrepare launch_prepare_dependent;
LaunchConvert launch_convert_dependent;

inline constexpr std::array candidates{
    Candidate{"one_value", one_value, launch_one_value},
    Candidate{"one_key_value", one_key_value, launch_one_key_value},
    Candidate{"shared_front", shared_front, launch_shared_front},
    Candidate{"one_value_shared_front", one_value_shared_front, launch_one_value_shared_front},
    Candidate{"split_groups", split_groups, launch_split_groups, launch_split_groups_combine},
    Candidate{"split_tail", split_tail, launch_split_tail, launch_split_tail_combine},
    Candidate{"dependent_launch", dependent_launch, launch_dependent, nullptr, launch_prepare_dependent,
              launch_convert_dependent},
};

/// nullptr: there is none of that name.
constexpr const Candidate* find_candidate(std::string_view name) {
  for (const Candidate& c : candidates) {
    if (name == c.name) return &c;
  }
  return nullptr;
}

}  // namespace flashmask::sm90::backward_pass
