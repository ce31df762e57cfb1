// What is left where the nodes cannot be filled: from a plan within the target to one with less traffic, without ever
// leaving the target.
#pragma once

#include <cstdint>
#include <span>

#include "balance/budget.hpp"
#include "balance/node_traffic.hpp"
#include "balance/state.hpp"

namespace flashmask::balancing {

/// Thresholds of a walk from far off, in quarters of the worst inbound; 0 takes nothing but improvements.
inline constexpr std::int64_t kHotWalk = 16;

/// Starts at `start`, whose ranks are all within `target`, and swaps chunks of ranks that both stay within it: between
/// nodes under threshold acceptance on the inbound traffic, inside a node freely, which moves the slack about. Returns
/// the state with the least worst inbound on the way, `start` if there is none better. `node_of_rank` by rank;
/// thresholds begin at `heat` quarters of the worst inbound and fall to 0; a step of the budget is a swap looked for,
/// about a tenth of a microsecond.
State walk_nodes(const Instance& instance, std::span<const NeedSets> needs, std::int64_t nodes,
                 std::span<const std::int32_t> node_of_rank, const State& start, std::int64_t target, std::int64_t heat,
                 std::uint64_t seed, Budget& budget);

}  // namespace flashmask::balancing
