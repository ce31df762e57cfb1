// CASES.md part B by number.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "flashmask/balance.hpp"
#include "flashmask/builders.hpp"

namespace flashmask {
namespace {

using List = std::vector<std::int64_t>;

Plan plan_of(List loads, std::int64_t ranks, PlanKind kind = PlanKind::hcc_ipo) {
  Workload w;
  w.loads = std::move(loads);
  w.ranks = ranks;
  return balance(w, {.kind = kind});
}

ColumnMask causal_documents(const List& lengths) {
  const std::int64_t n = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return masks::causal_document({.rows = n, .columns = n}, masks::documents_of(lengths));
}

Workload cells(const ColumnMask& mask, std::int64_t chunk, std::int64_t ranks, std::int64_t nodes = 1) {
  const WeightedMask masks[] = {{&mask, 1}};
  return make_workload(masks, {.chunk = chunk, .ranks = ranks, .nodes = nodes, .unit = WorkUnit::cells});
}

List sorted(std::span<const std::int64_t> loads) {
  List out(loads.begin(), loads.end());
  std::sort(out.begin(), out.end());
  return out;
}

/// The optimum, proven.
void expect_proven(const Plan& plan, std::int64_t peak) {
  EXPECT_EQ(plan.peak(), peak);
  EXPECT_EQ(plan.lower_bound(), peak);
  EXPECT_TRUE(plan.proven_optimal());
}

TEST(Cases, B1_pairs_stall_at_20_where_19_is_optimal) {
  const List w{10, 9, 9, 7, 7, 6, 5, 3, 1};
  EXPECT_EQ(plan_of(w, 3, PlanKind::lpt).peak(), 21);
  expect_proven(plan_of(w, 3), 19);
}

TEST(Cases, B2_lpt_7_optimum_6) {
  EXPECT_EQ(plan_of({3, 3, 2, 2, 2, 0}, 2, PlanKind::lpt).peak(), 7);
  expect_proven(plan_of({3, 3, 2, 2, 2, 0}, 2), 6);
}

TEST(Cases, B3_pigeonhole_proves_10) {
  const Plan plan = plan_of({8, 1, 9, 2, 2, 4}, 3);
  expect_proven(plan, 10);
  EXPECT_NE(plan.record().bound_by, BoundBy::search);
}

TEST(Cases, B4_ranks_tied_at_the_peak_do_not_stall) {
  expect_proven(plan_of({8, 1, 2, 9, 3, 3, 5, 2, 1, 3, 1, 6}, 4), 11);
}

TEST(Cases, B5_optimum_22) {
  expect_proven(plan_of({10, 6, 6, 11, 10, 1, 8, 12, 12, 1, 6, 4, 8, 10, 9, 7, 3, 6}, 6), 22);
}

TEST(Cases, B6_any_number_of_chunks_on_any_number_of_ranks) {
  for (const auto& [chunks, ranks] : {std::pair{64, 2}, std::pair{520, 8}, std::pair{18, 4}, std::pair{512, 64}}) {
    List loads(static_cast<std::size_t>(chunks));
    for (std::size_t c = 0; c < loads.size(); ++c) loads[c] = static_cast<std::int64_t>((c * c * 31) % 1009 + 1);
    const Plan plan = plan_of(loads, ranks);
    const std::int64_t total = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
    EXPECT_EQ(std::accumulate(plan.loads().begin(), plan.loads().end(), std::int64_t{0}), total);
    EXPECT_TRUE(plan.proven_optimal()) << chunks << " on " << ranks;
    EXPECT_GE(plan.peak(), (total + ranks - 1) / ranks);
    for (std::int64_t r = 0; r < ranks; ++r) {
      EXPECT_EQ(static_cast<std::int64_t>(plan.chunks_of(r).size()), chunks / ranks + (r < chunks % ranks));
    }
  }
}

TEST(Cases, B7_loads_are_64_bit) {
  // 4,194,304 columns in tiles of 128 are 32,768 blocks a side; 64 heads: 6.87e10 tiles, chunks of 32,768 rows.
  const std::int64_t tiles_of_a_chunk = std::int64_t{32768 / 128} * 32768 * 64;
  const Plan plan = plan_of(List(128, tiles_of_a_chunk), 16);
  EXPECT_EQ(std::accumulate(plan.loads().begin(), plan.loads().end(), std::int64_t{0}), 68'719'476'736);
  expect_proven(plan, 68'719'476'736 / 16);
  // The same from a mask: one head, loads counted by the tile room.
  const ColumnMask mask = masks::full({.rows = 4'194'304, .columns = 4'194'304});
  LoadOptions options;
  options.costs = {.partial = 64, .unmasked = 64};
  EXPECT_EQ(chunk_loads(mask, 32768, options), List(128, tiles_of_a_chunk));
}

TEST(Cases, B8_all_columns_dead) {
  const Plan plan = plan_of(List(16, 0), 4);
  expect_proven(plan, 0);
  EXPECT_EQ(plan.imbalance(), 1.0);
}

TEST(Cases, B9_documents_3_5_2_4_2) {
  const Workload w = cells(causal_documents({3, 5, 2, 4, 2}), 2, 2);
  EXPECT_EQ(w.loads, (List{3, 4, 5, 9, 3, 3, 7, 3}));
  expect_proven(balance(w), 19);
  EXPECT_EQ(sorted(balance(w, {.kind = PlanKind::dual_chunk}).loads()), (List{17, 20}));
}

TEST(Cases, B10_documents_1_2_13) {
  const Workload w = cells(causal_documents({1, 2, 13}), 2, 4);
  EXPECT_EQ(std::accumulate(w.loads.begin(), w.loads.end(), std::int64_t{0}), 95);
  const Plan plan = balance(w);
  expect_proven(plan, 27);
  EXPECT_EQ(plan.record().bound_by, BoundBy::pigeonhole);
}

TEST(Cases, B11_documents_4_12) {
  const ColumnMask mask = causal_documents({4, 12});
  EXPECT_EQ(sorted(balance(cells(mask, 2, 2)).loads()), (List{44, 44}));
  EXPECT_EQ(sorted(balance(cells(mask, 4, 2)).loads()), (List{36, 52}));
  // Dealing the halves of each document out separately would give 26/62: the zigzag inside documents never does.
  Workload w = cells(mask, 1, 2);
  w.documents = {4, 12};
  EXPECT_EQ(sorted(balance(w, {.kind = PlanKind::per_document_dual_chunk}).loads()), (List{44, 44}));
  for (const std::int64_t chunk : {1, 2, 4}) {
    for (const PlanKind kind : {PlanKind::hcc_ipo, PlanKind::lpt}) {
      EXPECT_LT(balance(cells(mask, chunk, 2), {.kind = kind}).peak(), 62);
    }
  }
}

TEST(Cases, B12_one_assignment_serves_full_and_window_layers) {
  const ColumnMask full = causal_documents({4, 8});
  ColumnMask window = full;  // the last 3 tokens of the own document
  for (std::int64_t j = 0; j < 12; ++j) {
    HiddenRows rows = full.at(0, 0, j);
    rows.lts = static_cast<std::int32_t>(std::min<std::int64_t>(j < 4 ? 4 : 12, j + 3));
    rows.lte = 12;
    window.set(0, 0, j, rows);
  }
  window.canonicalise();
  const WeightedMask masks[] = {{&full, 1}, {&window, 1}};
  const Plan plan = balance(make_workload(masks, {.chunk = 2, .ranks = 2, .unit = WorkUnit::cells}));
  const auto loads_under = [&](const ColumnMask& mask, const Plan& p) {
    List loads(2, 0);
    const List chunks = chunk_loads(mask, 2, {.unit = LoadUnit::cells});
    for (std::size_t c = 0; c < chunks.size(); ++c) loads[static_cast<std::size_t>(p.assignment()[c])] += chunks[c];
    return sorted(loads);
  };
  EXPECT_EQ(loads_under(full, plan), (List{21, 25}));
  EXPECT_EQ(loads_under(window, plan), (List{15, 15}));
  EXPECT_EQ(plan.peak(), 40);
}

TEST(Cases, B13_balance_without_traffic_between_nodes) {
  const Workload w = cells(causal_documents({8, 8}), 2, 4, 2);
  const Plan plan = balance(w);
  EXPECT_EQ(plan.peak(), 18);
  EXPECT_EQ(plan.traffic().inter_chunks, 0);
  EXPECT_LE(plan.traffic().total_chunks(), 6);
  EXPECT_EQ(plan.record().inbound, (List{0, 0}));
  const Plan dual = balance(w, {.kind = PlanKind::dual_chunk});
  EXPECT_EQ(dual.loads()[0], 18);
  EXPECT_EQ(dual.traffic().total_chunks(), 12);
}

TEST(Cases, B14_the_contiguous_owner_is_chunk_over_chunks_per_rank) {
  const Plan plan = plan_of(List(32, 1), 4, PlanKind::contiguous);
  EXPECT_EQ(plan.rank_of_chunk(31), 3);
  EXPECT_EQ(plan.chunks_of(3)[7], 31);
}

}  // namespace
}  // namespace flashmask
