// P3: the best way to deal the chunks of three ranks again.
#pragma once

#include "balance/budget.hpp"
#include "balance/state.hpp"

namespace flashmask::balancing {

/// Whether three ranks are few enough chunks for a complete repartition: at most 5 each, equal counts and speeds.
bool triples_apply(const Instance& instance);

/// Repartitions triples that contain an overloaded rank, each completely, as long as that lowers the total excess over
/// `target`; true when nothing exceeds it any more.
bool repartition_triples(const Instance& instance, State& state, std::int64_t target, Budget& budget);

}  // namespace flashmask::balancing
