// Plans for tests, by kind or with a chosen assignment.
#pragma once

#include <cstdint>
#include <vector>

#include "flashmask/balance.hpp"
#include "flashmask/builders.hpp"

namespace flashmask::testing {

inline Workload workload_of(const ColumnMask& mask, std::int64_t ranks, std::int64_t nodes, std::int64_t chunk) {
  const WeightedMask weighted{&mask, 1};
  WorkloadOptions options;
  options.chunk = chunk;
  options.ranks = ranks;
  options.nodes = nodes;
  options.unit = WorkUnit::cells;
  return make_workload(std::span(&weighted, 1), options);
}

inline Plan plan_of(const ColumnMask& mask, std::int64_t ranks, std::int64_t nodes, std::int64_t chunk, PlanKind kind,
                    std::vector<std::int64_t> documents = {}) {
  Workload workload = workload_of(mask, ranks, nodes, chunk);
  workload.documents = std::move(documents);
  BalanceOptions options;
  options.kind = kind;
  return balance(workload, options);
}

inline ColumnMask causal_documents(const std::vector<std::int64_t>& lengths, std::int64_t rows,
                                   std::int64_t batch = 1) {
  return masks::causal_document(MaskShape{batch, 1, rows, rows}, masks::documents_of(lengths));
}

}  // namespace flashmask::testing
