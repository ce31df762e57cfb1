// Windowed exact cover: is there an assignment within a target? Answers yes with one, no with a proof, or not at all.
#pragma once

#include "balance/budget.hpp"
#include "balance/state.hpp"

namespace flashmask::balancing {

enum class Verdict : std::uint8_t { feasible, infeasible, unknown };

/// Whether the exact search speaks about this instance at all: at most 64 chunks, equal speeds, 1 to 5 chunks a rank.
bool exact_applies(const Instance& instance);

/// Every rank's load must lie in [target - slack, target] where slack = ranks * target - total, so only groups of
/// chunks in that window matter. Enumerates all of them and covers the chunks by a depth-first search. `infeasible`
/// only when both ended within the budget: a truncated list of groups proves nothing. `found` is set when feasible.
Verdict exact_cover(const Instance& instance, std::int64_t target, Budget& budget, State& found);

}  // namespace flashmask::balancing
