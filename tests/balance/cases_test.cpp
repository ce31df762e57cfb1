// CASES.md part B by number.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "balance/traffic.hpp"
#include "flashmask/balance.hpp"
#include "flashmask/builders.hpp"
#include "flashmask/error.hpp"

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

List loads_by_rank(const List& w, const List& rank_of) {
  List sums(static_cast<std::size_t>(*std::max_element(rank_of.begin(), rank_of.end()) + 1), 0);
  for (std::size_t c = 0; c < w.size(); ++c) sums[static_cast<std::size_t>(rank_of[c])] += w[c];
  return sums;
}

/// Deals the chunks of ranks a and b out again in every way that keeps counts; true when the larger load fell.
bool repartition_pair(const List& w, List& rank_of, std::int64_t a, std::int64_t b) {
  std::vector<std::size_t> pool;
  for (std::size_t c = 0; c < w.size(); ++c) {
    if (rank_of[c] == a || rank_of[c] == b) pool.push_back(c);
  }
  const auto of_a = std::count(rank_of.begin(), rank_of.end(), a);
  const auto larger = [&](const List& r) {
    const List sums = loads_by_rank(w, r);
    return std::max(sums[static_cast<std::size_t>(a)], sums[static_cast<std::size_t>(b)]);
  };
  const std::int64_t before = larger(rank_of);
  List best = rank_of;
  for (std::uint32_t mask = 0; mask < (1U << pool.size()); ++mask) {
    if (std::popcount(mask) != of_a) continue;
    List trial = rank_of;
    for (std::size_t i = 0; i < pool.size(); ++i) trial[pool[i]] = (mask >> i & 1U) != 0 ? a : b;
    if (larger(trial) < larger(best)) best = trial;
  }
  rank_of = best;
  return larger(rank_of) < before;
}

TEST(Cases, B1_pairs_stall_at_20_where_19_is_optimal) {
  const List w{10, 9, 9, 7, 7, 6, 5, 3, 1};
  const Plan lpt = plan_of(w, 3, PlanKind::lpt);
  EXPECT_EQ(lpt.peak(), 21);
  expect_proven(plan_of(w, 3), 19);
  // Pair moves that must help the hottest rank, the coldest partner first, each the best of all there are: they stop.
  List rank_of(lpt.assignment().begin(), lpt.assignment().end());
  List sums = loads_by_rank(w, rank_of);
  for (bool fell = true; fell; sums = loads_by_rank(w, rank_of)) {
    const std::int64_t hot = std::max_element(sums.begin(), sums.end()) - sums.begin();
    const std::int64_t cold = std::min_element(sums.begin(), sums.end()) - sums.begin();
    fell = repartition_pair(w, rank_of, hot, cold) || repartition_pair(w, rank_of, hot, 3 - hot - cold);
  }
  EXPECT_EQ(*std::max_element(sums.begin(), sums.end()), 20);
}

TEST(Cases, B2_lpt_7_optimum_6) {
  EXPECT_EQ(plan_of({3, 3, 2, 2, 2, 0}, 2, PlanKind::lpt).peak(), 7);
  expect_proven(plan_of({3, 3, 2, 2, 2, 0}, 2), 6);
}

TEST(Cases, B3_pigeonhole_proves_10) {
  const List w{8, 1, 9, 2, 2, 4};
  const Plan plan = plan_of(w, 3);
  expect_proven(plan, 10);
  EXPECT_EQ(plan.record().bound_by, BoundBy::pigeonhole);
  const std::int64_t average = (std::accumulate(w.begin(), w.end(), std::int64_t{0}) + 2) / 3;
  EXPECT_EQ(std::max(average, *std::max_element(w.begin(), w.end())), 9);  // the plain bound
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
  // The same from a mask of one head, loads counted by the tile room.
  const ColumnMask one = masks::full({.rows = 4'194'304, .columns = 4'194'304});
  EXPECT_EQ(chunk_loads(one, 32768, {.costs = {.partial = 64, .unmasked = 64}}), List(128, tiles_of_a_chunk));
  // And from one of 64 heads: as many blocks a side, of 2 tokens instead of 128 (the vectors of 4M columns and 64 heads
  // are 4 GiB), so the same 6.87e10 tiles, counted and planned.
  const ColumnMask heads = masks::full({.heads = 64, .rows = 65'536, .columns = 65'536});
  const WeightedMask masks[] = {{&heads, 1}};
  const WorkloadOptions options{.chunk = 512, .ranks = 16, .tile_shape = {2, 2}, .costs = {{1, 1}, {1, 1}}};
  const Workload w = make_workload(masks, options);
  EXPECT_EQ(w.loads, List(128, tiles_of_a_chunk));
  expect_proven(balance(w), 68'719'476'736 / 16);
}

TEST(Cases, B8_all_columns_dead) {
  ColumnMask mask = masks::causal({.rows = 64, .columns = 64});
  for (std::int64_t j = 0; j < 64; ++j) mask.set(0, 0, j, {.lts = 0, .lte = 64, .uts = 0, .ute = 0});
  mask.canonicalise();
  EXPECT_EQ(element_density(mask), 0.0);
  const WeightedMask masks[] = {{&mask, 3}};
  for (const WorkUnit unit : {WorkUnit::cells, WorkUnit::tiles}) {
    const Workload w = make_workload(masks, {.chunk = 4, .ranks = 4, .nodes = 2, .unit = unit});
    EXPECT_EQ(w.loads, List(16, 0));
    const Plan plan = balance(w);
    expect_proven(plan, 0);
    EXPECT_EQ(sorted(plan.loads()), List(4, 0));
    EXPECT_EQ(plan.imbalance(), 1.0);
    EXPECT_EQ(plan.traffic(), Traffic{});
  }
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
  const Workload fine = cells(mask, 2, 2), coarse = cells(mask, 4, 2);
  EXPECT_EQ(std::accumulate(fine.loads.begin(), fine.loads.end(), std::int64_t{0}), 88);
  const Plan even = balance(fine);
  expect_proven(even, 44);
  EXPECT_EQ(sorted(even.loads()), (List{44, 44}));
  EXPECT_EQ(fine.loads[0] + fine.loads[1] + fine.loads[4] + fine.loads[7], 44);  // {0,1,4,7}
  const Plan best = balance(coarse);
  expect_proven(best, 52);
  EXPECT_EQ(sorted(best.loads()), (List{36, 52}));
  // Dealing each document's pieces out separately, cut where they fall, gives 26/62 (chunk 2 alone against 0, 1 and 3):
  // whoever asks for the zigzag inside documents is refused until the pieces are whole chunks, no other kind may come
  // to it, and as a plan it is refused.
  const auto check = [](const Plan& plan) {
    EXPECT_LT(plan.peak(), 62) << to_string(plan.kind()) << " chunk " << plan.chunk();
    EXPECT_EQ(plan.chunks_of(0).size(), plan.chunks_of(1).size());
  };
  for (const std::int64_t chunk : {1, 2, 4}) {
    Workload w = cells(mask, chunk, 2);
    w.documents = {4, 12};
    for (const PlanKind kind : {PlanKind::hcc_ipo, PlanKind::lpt, PlanKind::dual_chunk}) {
      check(balance(w, {.kind = kind}));
    }
    if (chunk == 1) {
      const Plan zigzag = balance(w, {.kind = PlanKind::per_document_dual_chunk});
      EXPECT_EQ(sorted(zigzag.loads()), (List{44, 44}));
      continue;
    }
    try {
      balance(w, {.kind = PlanKind::per_document_dual_chunk});
      ADD_FAILURE() << "chunk " << chunk << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find("document 0 has 4 tokens"), std::string::npos) << error.what();
    }
  }
  PlanRecord bad = best.record();
  bad.assignment = {1, 1, 0, 1};
  bad.loads = {26, 62};
  bad.peak = 62;
  EXPECT_THROW(Plan{bad}, Error);
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
  expect_proven(plan, 40);
  std::vector<List> owned;
  for (const std::int64_t r : {0, 1}) owned.emplace_back(plan.chunks_of(r).begin(), plan.chunks_of(r).end());
  std::sort(owned.begin(), owned.end());
  EXPECT_EQ(owned, (std::vector<List>{{0, 1, 4}, {2, 3, 5}}));
  // For the window layers alone {0,1,3},{2,4,5} is as good, optimal, and gives the full layers 17/29.
  const WeightedMask alone[] = {{&window, 1}};
  const Plan narrow = balance(make_workload(alone, {.chunk = 2, .ranks = 2, .unit = WorkUnit::cells}));
  expect_proven(narrow, 15);
  PlanRecord other = narrow.record();
  other.assignment = {0, 0, 1, 0, 1, 1};
  const auto traffic = balancing::count_traffic(other.needs, other.assignment, 2, 1, 12, 2);
  other.inbound = traffic.inbound, other.outbound = traffic.outbound, other.traffic = traffic.traffic;
  const Plan blind{other};
  EXPECT_EQ(blind.peak(), 15);
  EXPECT_EQ(loads_under(full, blind), (List{17, 29}));
}

TEST(Cases, B13_balance_without_traffic_between_nodes) {
  const Workload w = cells(causal_documents({8, 8}), 2, 4, 2);
  const Plan plan = balance(w);
  expect_proven(plan, 18);
  EXPECT_EQ(plan.traffic().inter_chunks, 0);
  EXPECT_LE(plan.traffic().total_chunks(), 6);
  EXPECT_EQ(plan.chunks() * (plan.ranks() - 1), 24);  // all that could be transferred
  std::vector<List> owned;
  for (std::int64_t r = 0; r < 4; ++r) owned.emplace_back(plan.chunks_of(r).begin(), plan.chunks_of(r).end());
  std::sort(owned.begin(), owned.begin() + 2);
  std::sort(owned.begin() + 2, owned.end());
  std::sort(owned.begin(), owned.end());  // the documents may change nodes and the ranks of a node each other
  EXPECT_EQ(owned, (std::vector<List>{{0, 3}, {1, 2}, {4, 7}, {5, 6}}));
  EXPECT_EQ(plan.record().inbound, (List{0, 0}));
  const Plan dual = balance(w, {.kind = PlanKind::dual_chunk});
  EXPECT_EQ(sorted(dual.loads()), sorted(plan.loads()));
  EXPECT_EQ(dual.traffic().total_chunks(), 12);
}

TEST(Cases, B14_the_contiguous_owner_is_chunk_over_chunks_per_rank) {
  const Plan plan = plan_of(List(32, 1), 4, PlanKind::contiguous);
  EXPECT_EQ(plan.rank_of_chunk(31), 3);
  EXPECT_EQ(plan.chunks_of(3)[7], 31);
}

}  // namespace
}  // namespace flashmask
