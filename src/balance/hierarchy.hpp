// HCC: traffic between nodes first, then IPO inside every node, then a repair across nodes.
#pragma once

#include "balance/solver.hpp"

namespace flashmask::balancing {

struct HierarchyOptions {
  std::int64_t nodes = 1;
  std::vector<std::int64_t> node_of{};  ///< by rank of the instance; empty: rank * nodes / ranks
  std::int64_t epsilon_millionths = 0;
  std::int64_t steps = 0;  ///< chunk moves of stage 2; 0: a default from the size
};

/// Lowers the worst node's inbound traffic of `flat` (the plan that ignores nodes) while every rank stays within
/// (1 + epsilon) * max(bound, average). Returns false, leaving `flat` alone, when nothing is gained.
bool improve_traffic(const Instance& instance, std::span<const NeedSets> needs, const HierarchyOptions& options,
                     const SolveOptions& solve, Solution& flat);

/// Both: the plan that ignores nodes, in half the time at most where there is a deadline, then less traffic.
Solution solve_on_nodes(const Instance& instance, std::span<const NeedSets> needs, const HierarchyOptions& options,
                        const SolveOptions& solve);

}  // namespace flashmask::balancing
