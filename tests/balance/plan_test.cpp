// Plans as values: layouts, certificate, digest, refusals.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "balance/families.hpp"
#include "flashmask/balance.hpp"
#include "flashmask/error.hpp"

namespace flashmask {
namespace {

Workload bare(std::vector<std::int64_t> loads, std::int64_t ranks) {
  Workload w;
  w.loads = std::move(loads);
  w.ranks = ranks;
  return w;
}

std::vector<std::int64_t> chunks_of(const Plan& plan, std::int64_t rank) {
  const auto span = plan.chunks_of(rank);
  return {span.begin(), span.end()};
}

/// Text of the error `call` throws; fails the test when it throws none.
template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

using List = std::vector<std::int64_t>;

TEST(Plan, contiguous_deals_consecutive_chunks) {
  const Plan plan = balance(bare(List(32, 1), 4), {.kind = PlanKind::contiguous});
  EXPECT_EQ(chunks_of(plan, 3), (List{24, 25, 26, 27, 28, 29, 30, 31}));
}

TEST(Plan, dual_chunk_is_a_zigzag_and_keeps_counts_where_pieces_do_not_divide) {
  const Plan even = balance(bare(List(8, 1), 2), {.kind = PlanKind::dual_chunk});
  EXPECT_EQ(chunks_of(even, 0), (List{0, 1, 6, 7}));
  EXPECT_EQ(chunks_of(even, 1), (List{2, 3, 4, 5}));
  const Plan odd = balance(bare(List(18, 1), 4), {.kind = PlanKind::dual_chunk});
  EXPECT_EQ(chunks_of(odd, 0), (List{0, 1, 2, 16, 17}));
  EXPECT_EQ(chunks_of(odd, 3), (List{8, 9, 10, 11}));
}

TEST(Plan, per_document_dual_chunk_needs_whole_pieces) {
  Workload w = bare(List(8, 1), 2);
  w.documents = {4, 4};
  const Plan plan = balance(w, {.kind = PlanKind::per_document_dual_chunk});
  EXPECT_EQ(chunks_of(plan, 0), (List{0, 3, 4, 7}));
  EXPECT_EQ(chunks_of(plan, 1), (List{1, 2, 5, 6}));
  w.documents = {3, 5};
  EXPECT_NE(error_of([&] { balance(w, {.kind = PlanKind::per_document_dual_chunk}); }).find("document 0 has 3"),
            std::string::npos);
}

TEST(Plan, every_kind_gives_every_chunk_once_and_counts_that_differ_by_one) {
  for (const std::int64_t chunks : {1, 2, 7, 64, 65, 97, 520}) {
    for (const std::int64_t ranks : {1, 2, 3, 5, 8, 64, 100}) {
      List loads(static_cast<std::size_t>(chunks));
      for (std::size_t c = 0; c < loads.size(); ++c) loads[c] = static_cast<std::int64_t>((c * 7919) % 101);
      for (const PlanKind kind : {PlanKind::hcc_ipo, PlanKind::contiguous, PlanKind::dual_chunk, PlanKind::lpt}) {
        const Plan plan = balance(bare(loads, ranks), {.kind = kind});
        std::set<std::int64_t> seen;
        for (std::int64_t r = 0; r < ranks; ++r) {
          const auto own = chunks_of(plan, r);
          EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
          EXPECT_EQ(static_cast<std::int64_t>(own.size()), chunks / ranks + (r < chunks % ranks ? 1 : 0));
          seen.insert(own.begin(), own.end());
        }
        EXPECT_EQ(static_cast<std::int64_t>(seen.size()), chunks);
        EXPECT_LE(plan.lower_bound(), plan.peak());
      }
    }
  }
}

TEST(Plan, the_fastest_ranks_hold_one_chunk_more) {
  Workload w = bare(List(5, 10), 4);
  for (const List& speeds : {List{90, 100, 100, 100}, List{100, 100, 100, 90}, List{100, 90, 100, 100}}) {
    w.speeds = speeds;
    const Plan plan = balance(w);
    EXPECT_EQ(plan.peak(), 20);
    EXPECT_TRUE(plan.proven_optimal());
  }
  // Of equal ranks the lower number, in every kind; layouts still walk the ranks by number.
  w.speeds = {50, 100, 50, 100};
  for (const PlanKind kind : {PlanKind::hcc_ipo, PlanKind::contiguous, PlanKind::dual_chunk, PlanKind::lpt}) {
    EXPECT_EQ(chunks_of(balance(w, {.kind = kind}), 1).size(), 2U) << to_string(kind);
  }
  EXPECT_EQ(chunks_of(balance(w, {.kind = PlanKind::contiguous}), 1), (List{1, 2}));
  EXPECT_EQ(chunks_of(balance(w, {.kind = PlanKind::dual_chunk}), 1), (List{1, 4}));
  // The problem is the one with these counts: the slower rank with two chunks would reach 10.
  Workload few = bare({10, 1, 1}, 2);
  few.speeds = {100, 90};
  EXPECT_EQ(balance(few).peak(), 11);
}

TEST(Plan, only_the_ratios_of_speeds_count_and_equal_ones_are_none) {
  Workload w = balancing::family_workload(balancing::Family::causal_document_8k, 120 << 10, 16, 2, 3);
  for (const PlanKind kind : {PlanKind::hcc_ipo, PlanKind::lpt, PlanKind::contiguous}) {
    w.speeds.clear();
    const Plan none = balance(w, {.kind = kind});
    for (const std::int64_t speed : {1, 2, 100}) {
      w.speeds.assign(16, speed);
      const Plan equal = balance(w, {.kind = kind});
      EXPECT_EQ(first_difference(equal, none), "") << to_string(kind) << " at " << speed;
      EXPECT_EQ(equal.digest(), none.digest());
    }
  }
  // Proven as without: with speeds no bound by residue is looked for.
  w = bare({1207, 507, 1807, 2107, 907, 1107, 1607, 507, 1307, 107, 2307, 2038, 1407, 1507, 107, 1907}, 4);
  w.speeds.assign(4, 7);
  EXPECT_EQ(balance(w).record().bound_by, BoundBy::residue);
  EXPECT_TRUE(balance(w).proven_optimal());
  w.speeds = {200, 100, 300, 100};
  const Plan coarse = balance(w);
  EXPECT_EQ(coarse.record().speeds, (List{2, 1, 3, 1}));
  w.speeds = {2, 1, 3, 1};
  EXPECT_EQ(balance(w).digest(), coarse.digest());
}

TEST(Plan, an_empty_workload_is_a_plan_without_chunks) {
  const Plan plan = balance(bare({}, 3));
  EXPECT_EQ(plan.chunks(), 0);
  EXPECT_EQ(plan.peak(), 0);
  EXPECT_TRUE(plan.proven_optimal());
  EXPECT_EQ(plan.imbalance(), 1.0);
}

TEST(Plan, rows_of_a_ragged_last_chunk_are_counted) {
  Workload w = bare(List(18, 5), 8);
  w.columns = 2267;
  w.chunk = 128;
  const Plan plan = balance(w, {.kind = PlanKind::contiguous});
  std::int64_t rows = 0;
  for (std::int64_t r = 0; r < 8; ++r) rows += plan.rows_of(r);
  EXPECT_EQ(rows, 2267);
  EXPECT_EQ(plan.chunk_end(17) - plan.chunk_begin(17), 91);
}

TEST(Plan, digest_and_first_difference_name_what_differs) {
  const Plan a = balance(bare({5, 4, 3, 2}, 2));
  const Plan same = balance(bare({5, 4, 3, 2}, 2));
  EXPECT_EQ(a.digest(), same.digest());
  EXPECT_EQ(first_difference(a, same), "");
  const Plan other = balance(bare({5, 4, 3, 2}, 2), {.kind = PlanKind::contiguous});
  EXPECT_NE(a.digest(), other.digest());
  EXPECT_EQ(first_difference(a, other), "kind: hcc_ipo != contiguous");
  EXPECT_EQ(first_difference(a, balance(bare({5, 4, 3, 2, 1, 1}, 2))), "columns: 4 != 6");
}

TEST(Plan, traffic_counts_crossings_once_per_node_and_forwards_inside) {
  // Chunk 3 is needed by everybody, chunk 0 by nobody else; 4 ranks on 2 nodes, one chunk each.
  Workload w = bare({1, 1, 1, 1}, 4);
  w.nodes = 2;
  w.chunk = 10;
  w.columns = 37;
  NeedRuns need(1, 4, 4);
  for (int i = 0; i < 4; ++i) need.add(0, i, {i, i + 1}), need.add(0, i, {3, 4});
  w.needs = {NeedSets(need, 3)};
  const Plan plan = balance(w, {.kind = PlanKind::contiguous});
  EXPECT_EQ(plan.record().inbound, (List{3, 0}));
  EXPECT_EQ(plan.record().outbound, (List{0, 3}));
  EXPECT_EQ(plan.traffic(), (Traffic{3, 6, 21, 42}));  // 1 crossing, 1 forward in node 0, 1 delivery in node 1; x3
  EXPECT_EQ(plan.bytes(2, 4, 2).inter, 21 * 2 * 2 * 4 * 2);
  EXPECT_EQ(plan.bytes(2, 4, 2).intra, 42 * 2 * 2 * 4 * 2);
}

TEST(Plan, traffic_of_2_to_the_63_rows_is_refused) {
  constexpr std::int64_t kChunks = 128;  // each needs all: 128 * 127 deliveries of 2^30 rows
  Workload w = bare(List(kChunks, 1), kChunks);
  w.chunk = std::int64_t{1} << 30;
  w.columns = kChunks * w.chunk;
  NeedRuns need(1, kChunks, kChunks);
  for (std::int64_t i = 0; i < kChunks; ++i) need.add(0, i, {0, kChunks});
  w.needs = {NeedSets(need, 500'000)};
  EXPECT_EQ(balance(w).traffic().intra_rows, kChunks * (kChunks - 1) * w.chunk * 500'000);
  w.needs[0].weight = kMostLayers;
  EXPECT_EQ(error_of([&] { balance(w); }).rfind("the traffic is 2^63 rows or more", 0), 0U);
}

TEST(Plan, a_record_that_contradicts_itself_is_refused_by_the_field) {
  Workload w = bare({5, 4, 3, 2}, 2);
  w.needs = {NeedSets(NeedRuns(1, 4, 4))};
  const PlanRecord good = balance(w).record();
  const auto broken = [&](auto&& change) {
    PlanRecord r = good;
    change(r);
    return error_of([&] { Plan{r}; });
  };
  EXPECT_EQ(broken([](PlanRecord& r) { r.assignment[1] = 2; }).rfind("assignment[1] = 2", 0), 0U);
  EXPECT_EQ(broken([](PlanRecord& r) { r.assignment = {0, 0, 0, 1}; }).rfind("assignment gives rank 0 3", 0), 0U);
  EXPECT_EQ(broken([](PlanRecord& r) { r.chunk_loads[0] = 6; }).rfind("loads[", 0), 0U);
  EXPECT_EQ(broken([](PlanRecord& r) { r.peak -= 1; }).rfind("peak", 0), 0U);
  EXPECT_EQ(broken([](PlanRecord& r) { r.lower_bound = 8; }).rfind("lower_bound", 0), 0U);
  EXPECT_EQ(broken([](PlanRecord& r) { r.proven_optimal = !r.proven_optimal; }).rfind("proven_optimal", 0), 0U);
  EXPECT_EQ(broken([](PlanRecord& r) { r.columns = 5; }).rfind("columns", 0), 0U);
  EXPECT_EQ(broken([](PlanRecord& r) { r.nodes = 3; }).rfind("nodes", 0), 0U);
  EXPECT_EQ(broken([](PlanRecord& r) { r.inbound = {1}; }).rfind("inbound", 0), 0U);
  EXPECT_EQ(broken([](PlanRecord& r) { r.traffic.intra_rows = 9; }).rfind("traffic", 0), 0U);
  EXPECT_EQ(broken([](PlanRecord& r) { r.needs[0] = NeedSets(NeedRuns(1, 5, 5)); }).rfind("needs[0]", 0), 0U);
}

TEST(Workload, what_cannot_be_planned_is_refused_by_name) {
  EXPECT_EQ(error_of([] { balance(bare({1, -1}, 1)); }).rfind("loads[1] = -1", 0), 0U);
  EXPECT_EQ(error_of([] { balance(bare({1}, 0)); }).rfind("ranks = 0", 0), 0U);
  const std::int64_t half = std::int64_t{1} << 61;
  EXPECT_EQ(balance(bare({half, half}, 2)).peak(), half);
  EXPECT_EQ(error_of([&] { balance(bare({half, half, 1}, 2)); }).rfind("loads sum to more than 2^62", 0), 0U);
  EXPECT_EQ(error_of([] { plan_kind("zigzag"); }).rfind("kind = 'zigzag'", 0), 0U);
  Workload w = bare({1, 2}, 2);
  w.speeds = {1};
  EXPECT_EQ(error_of([&] { balance(w); }).rfind("speeds has 1", 0), 0U);
  w.speeds = {0, 1};
  EXPECT_EQ(error_of([&] { balance(w); }).rfind("speeds[0] = 0", 0), 0U);
}

}  // namespace
}  // namespace flashmask
