// The independent verifier: agrees with every plan kind, and notices every single change.
#include "balance/verify.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "balance/families.hpp"
#include "flashmask/builders.hpp"

namespace flashmask::balancing {
namespace {

const WorkloadOptions kOptions{
    .chunk = 1024, .ranks = 16, .nodes = 2, .costs = {{13, 10}, {33, 25}}, .backward_weight = 1};

TEST(Verify, plans_of_every_kind_pass_against_their_masks) {
  const ColumnMask documents = family_mask(Family::causal_document_8k, 64 << 10, 3);
  const ColumnMask prefix = family_mask(Family::prefix_lm_16k, 64 << 10, 4);
  const WeightedMask masks[] = {{&documents, 3}, {&prefix, 1}};
  Workload w = make_workload(masks, kOptions);
  w.documents = {32 << 10, 32 << 10};
  for (const PlanKind kind : {PlanKind::hcc_ipo, PlanKind::contiguous, PlanKind::dual_chunk,
                              PlanKind::per_document_dual_chunk, PlanKind::lpt}) {
    const Verification v = verify(balance(w, {.kind = kind}).record(), masks, kOptions);
    EXPECT_TRUE(v.passed()) << to_string(kind) << ": " << v.findings.front();
    EXPECT_TRUE(v.against_masks);
  }
  WorkloadOptions cells = kOptions;
  cells.unit = WorkUnit::cells;
  const Verification v = verify(balance(make_workload(masks, cells)).record(), masks, cells);
  EXPECT_TRUE(v.passed()) << v.findings.front();
}

TEST(Verify, bounds_of_every_kind_are_confirmed) {
  int seen[6] = {};
  for (std::uint64_t seed = 0; seed < 90; ++seed) {
    Workload w;
    w.ranks = 4 + static_cast<std::int64_t>(seed % 13);
    w.loads = seed % 3 == 0   ? uniform_loads(w.ranks * 4, 1000, seed)
              : seed % 3 == 1 ? family_workload(Family::prefix_lm_16k, w.ranks << 13, w.ranks, 1, seed).loads
                              : uniform_loads(w.ranks * 3 + 2, 9, seed);
    if (seed % 7 == 0) {  // a lattice: every load is a multiple of 40 and some more
      for (auto& load : w.loads) load = 40 * load + 13;
    }
    if (seed % 5 == 0) w.loads[0] = 20'000 + static_cast<std::int64_t>(seed);
    const Plan plan = balance(w);
    const Verification v = verify(plan.record(), {}, {});
    EXPECT_TRUE(v.passed()) << "seed " << seed << ": " << v.findings.front();
    if (plan.record().bound_by != BoundBy::search) {
      EXPECT_EQ(v.bound, BoundCheck::recomputed) << seed;
    }
    ++seen[static_cast<std::size_t>(plan.record().bound_by)];
  }
  EXPECT_GT(seen[static_cast<std::size_t>(BoundBy::average)], 0);
  EXPECT_GT(seen[static_cast<std::size_t>(BoundBy::pigeonhole)], 0);
  EXPECT_GT(seen[static_cast<std::size_t>(BoundBy::residue)], 0);
}

/// The last row needs one run less.
NeedSets without_last_run(const NeedSets& need) {
  NeedRuns changed(need.batch(), need.chunks(), need.chunks());
  for (std::int64_t i = 0; i < need.chunks(); ++i) {
    const auto row = need.row(0, i);
    for (std::size_t k = 0; k < row.size() - (i + 1 == need.chunks() ? 1 : 0); ++k) changed.add(0, i, row[k]);
  }
  return NeedSets(changed, need.weight);
}

TEST(Verify, every_single_lie_is_found) {
  const ColumnMask mask = family_mask(Family::causal_document_8k, 64 << 10, 5);
  const WeightedMask masks[] = {{&mask, 1}};
  const PlanRecord good = balance(make_workload(masks, kOptions)).record();
  ASSERT_TRUE(verify(good, masks, kOptions).passed());
  const auto caught = [&](auto&& change) {
    PlanRecord bad = good;
    change(bad);
    return !verify(bad, masks, kOptions).passed();
  };
  EXPECT_TRUE(caught([](PlanRecord& r) { r.assignment[0] = 99; }));
  EXPECT_TRUE(caught([](PlanRecord& r) { r.assignment[0] = (r.assignment[0] + 1) % 16; }));
  EXPECT_TRUE(caught([](PlanRecord& r) { r.chunk_loads[3] += 1; }));
  EXPECT_TRUE(caught([](PlanRecord& r) { std::swap(r.loads[0], r.loads[1]), r.loads[0] += 1; }));
  EXPECT_TRUE(caught([](PlanRecord& r) { r.peak += 1; }));
  EXPECT_TRUE(caught([](PlanRecord& r) { r.lower_bound = r.peak + 1; }));
  EXPECT_TRUE(caught([](PlanRecord& r) { r.proven_optimal = !r.proven_optimal; }));
  EXPECT_TRUE(caught([](PlanRecord& r) { r.needs[0] = without_last_run(r.needs[0]); }));
  EXPECT_TRUE(caught([](PlanRecord& r) {  // nothing left that speaks of traffic
    r.needs.clear(), r.inbound.clear(), r.outbound.clear();
    r.traffic = {};
  }));
  EXPECT_TRUE(caught([](PlanRecord& r) { r.inbound[0] -= 1; }));
  EXPECT_TRUE(caught([](PlanRecord& r) { r.traffic.intra_chunks += 1; }));
  EXPECT_TRUE(caught([](PlanRecord& r) { r.nodes = 4; }));
  // Other masks or costs than the plan was made for.
  const ColumnMask other = family_mask(Family::causal_document_8k, 64 << 10, 6);
  const WeightedMask wrong[] = {{&other, 1}};
  EXPECT_FALSE(verify(good, wrong, kOptions).passed());
  WorkloadOptions dearer = kOptions;
  dearer.costs.forward.partial += 1;
  EXPECT_FALSE(verify(good, masks, dearer).passed());
  PlanRecord silent = good;  // says nothing of how tiles were counted: the loads alone tell
  silent.tile_work.reset();
  EXPECT_TRUE(verify(silent, masks, kOptions).passed());
  EXPECT_FALSE(verify(silent, masks, dearer).passed());
  PlanRecord forged = good;  // says that they were counted otherwise
  forged.tile_work->costs.forward.partial += 1;
  EXPECT_FALSE(verify(forged, masks, kOptions).passed());
  EXPECT_FALSE(verify(forged, masks, dearer).passed());
}

TEST(Verify, a_mask_that_is_not_square_is_none_of_a_plan) {
  const ColumnMask mask = masks::causal({1, 1, 1024, 1024});
  const WeightedMask square[] = {{&mask, 1}};
  for (const WorkUnit unit : {WorkUnit::cells, WorkUnit::tiles}) {
    const WorkloadOptions options{.chunk = 64, .ranks = 4, .unit = unit};
    const PlanRecord plan = balance(make_workload(square, options)).record();
    ASSERT_TRUE(verify(plan, square, options).passed());
    for (const std::int64_t rows : {0, 1023, 4096}) {
      const ColumnMask tall = masks::full({1, 1, rows, 1024});
      const WeightedMask other[] = {{&tall, 1}};
      const Verification v = verify(plan, other, options);
      ASSERT_EQ(v.findings.size(), 1U) << rows;
      EXPECT_NE(v.findings[0].find("square"), std::string::npos) << v.findings[0];
    }
  }
}

TEST(Verify, traffic_beyond_64_bits_is_a_finding_not_a_small_number) {
  const ColumnMask mask = masks::full({1, 1, 128, 128});
  const WeightedMask masks[] = {{&mask, 1}};
  PlanRecord plan = balance(make_workload(masks, {.chunk = 64, .ranks = 2, .nodes = 2})).record();
  ASSERT_TRUE(verify(plan, {}, {}).passed());
  plan.needs[0].weight = std::int64_t{1} << 57;  // 2 crossings of 64 rows each: 2^64 in all
  plan.inbound = plan.outbound = {plan.needs[0].weight, plan.needs[0].weight};
  plan.traffic = {2 * plan.needs[0].weight, 0, 0, 0};
  const Verification v = verify(plan, {}, {});
  ASSERT_EQ(v.findings.size(), 1U);
  EXPECT_NE(v.findings[0].find("2^63"), std::string::npos) << v.findings[0];
}

TEST(Verify, a_plan_that_is_not_of_its_kind_is_found) {
  const std::vector<std::int64_t> documents{32 << 10, 96 << 10, 64 << 10};
  Workload w = family_workload(Family::causal_document_8k, 192 << 10, 4, 2, 3);
  w.documents = documents;
  const PlanKind layouts[] = {PlanKind::contiguous, PlanKind::dual_chunk, PlanKind::per_document_dual_chunk};
  for (const PlanKind kind : layouts) {
    const PlanRecord good = balance(w, {.kind = kind}).record();
    EXPECT_TRUE(verify(good, {}, {}).passed()) << to_string(kind) << ": " << verify(good, {}, {}).findings.front();
    const Verification known = verify(good, {}, {}, documents);
    EXPECT_TRUE(known.passed()) << to_string(kind) << ": " << known.findings.front();
    for (const PlanKind forged : {PlanKind::contiguous, PlanKind::dual_chunk, PlanKind::per_document_dual_chunk,
                                  PlanKind::lpt, PlanKind::hcc_ipo}) {
      if (forged == kind) continue;
      PlanRecord bad = good;
      bad.kind = forged;
      const Verification v = verify(Plan(bad).record(), {}, {}, documents);  // the plan itself stays legal
      ASSERT_FALSE(v.passed()) << to_string(kind) << " passes for " << to_string(forged);
      EXPECT_TRUE(v.findings.front().find("kind is ") != std::string::npos ||
                  v.findings.front().find("the plan is by lpt") != std::string::npos)
          << v.findings.front();
    }
    PlanRecord bad = good;
    bad.method = PlanMethod::triples;
    EXPECT_FALSE(verify(bad, {}, {}).passed()) << to_string(kind);
    bad = good;
    bad.seed = 7;
    EXPECT_FALSE(verify(bad, {}, {}).passed()) << to_string(kind);
  }
  // Right for other documents: what the file alone cannot show, the documents do.
  const PlanRecord other = balance(w, {.kind = PlanKind::per_document_dual_chunk}).record();
  const std::vector<std::int64_t> swapped{96 << 10, 32 << 10, 64 << 10};
  EXPECT_FALSE(verify(other, {}, {}, swapped).passed());
  const PlanRecord searched = balance(w).record();
  for (const PlanKind forged : layouts) {
    PlanRecord bad = searched;
    bad.kind = forged;
    bad.method = PlanMethod::layout;
    bad.epsilon_millionths = 0;
    EXPECT_FALSE(verify(bad, {}, {}).passed()) << to_string(forged);
  }
}

TEST(Verify, layouts_of_every_small_size_are_of_their_kind) {
  for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
    for (std::int64_t chunks = 0; chunks <= 4 * ranks + 1; ++chunks) {
      Workload w;
      w.ranks = ranks;
      w.loads.assign(static_cast<std::size_t>(chunks), 3);
      for (const PlanKind kind : {PlanKind::contiguous, PlanKind::dual_chunk, PlanKind::lpt, PlanKind::hcc_ipo}) {
        const Verification v = verify(balance(w, {.kind = kind}).record(), {}, {});
        EXPECT_TRUE(v.passed()) << to_string(kind) << ", " << chunks << " chunks on " << ranks << ": " << v.findings[0];
        if (chunks == 0) {
          EXPECT_EQ(v.bound, BoundCheck::trivial);
        }
      }
      if (chunks == 0 || chunks % (2 * ranks) != 0) continue;
      w.documents = {2 * ranks, chunks - 2 * ranks};
      const Verification v =
          verify(balance(w, {.kind = PlanKind::per_document_dual_chunk}).record(), {}, {}, w.documents);
      EXPECT_TRUE(v.passed()) << chunks << " chunks on " << ranks << ": " << v.findings[0];
    }
  }
}

/// A plan whose bound needed a complete search: uniform loads at four a rank.
PlanRecord searched_record(std::uint64_t seed) {
  Workload w;
  w.ranks = 6;
  w.loads = uniform_loads(24, 10'000, seed);
  return balance(w).record();
}

TEST(Verify, a_bound_by_search_is_searched_again) {
  int searched = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    PlanRecord r = searched_record(seed);
    if (r.bound_by != BoundBy::search || !r.proven_optimal) continue;
    const Verification v = verify(r, {}, {});
    EXPECT_TRUE(v.passed()) << "seed " << seed << ": " << v.findings.front();
    EXPECT_EQ(v.not_rechecked, "");
    searched += v.bound == BoundCheck::searched;
    r.lower_bound -= 1;  // smaller, so true, and still more than any argument gives
    r.proven_optimal = false;
    EXPECT_TRUE(verify(r, {}, {}).passed()) << "seed " << seed;
  }
  EXPECT_GE(searched, 10);
}

TEST(Verify, a_bound_by_search_where_none_can_have_run_is_found) {
  const auto finding = [](PlanRecord r) {
    r.bound_by = BoundBy::search;
    r.lower_bound = r.peak;
    r.proven_optimal = true;
    const Verification v = verify(Plan(r).record(), {}, {});
    return v.passed() ? std::string() : v.findings.front();
  };
  const auto claims = [&](std::int64_t chunks, std::int64_t ranks, bool speeds) {
    Workload w;
    w.ranks = ranks;
    w.loads = uniform_loads(chunks, 10'000, 3);
    PlanRecord r = balance(w, {.steps = 1, .proof_steps = 0}).record();
    if (speeds) r.speeds.assign(static_cast<std::size_t>(ranks), 7);  // as no plan of ours has them, but a file may
    return finding(r);
  };
  for (const auto& [chunks, ranks, speeds] :
       {std::tuple{65, 16, false}, std::tuple{60, 10, false}, std::tuple{12, 4, true}, std::tuple{3, 4, false}}) {
    EXPECT_NE(claims(chunks, ranks, speeds).find("no complete search takes " + std::to_string(chunks)),
              std::string::npos)
        << chunks << " on " << ranks;
  }
  PlanRecord lpt = searched_record(1);
  EXPECT_EQ(finding(lpt), "");
  Workload w;
  w.ranks = 6;
  w.loads = lpt.chunk_loads;
  EXPECT_NE(finding(balance(w, {.kind = PlanKind::lpt}).record()).find("kind lpt never searches"), std::string::npos);
}

TEST(Verify, labels_that_the_numbers_contradict_are_found) {
  const auto finding = [](const PlanRecord& good, auto&& change) {
    PlanRecord r = good;
    change(r);
    const Verification v = verify(Plan(r).record(), {}, {});
    return v.passed() ? std::string() : v.findings.front();
  };
  Workload w;
  w.ranks = 3;
  w.loads = {8, 1, 9, 2, 2, 4};  // B3: 10 by pigeonhole, 9 by the average
  const PlanRecord b3 = balance(w).record();
  ASSERT_EQ(b3.bound_by, BoundBy::pigeonhole);
  EXPECT_EQ(finding(b3, [](PlanRecord&) {}), "");
  EXPECT_NE(finding(b3, [](PlanRecord& r) { r.bound_by = BoundBy::average; }).find("does not follow from"),
            std::string::npos);
  const auto lower = [](PlanRecord& r) { r.lower_bound = 9, r.proven_optimal = false; };
  EXPECT_NE(finding(b3, lower).find("pigeonhole, gives more"), std::string::npos);
  const auto method = [&](PlanMethod m) { return finding(b3, [&](PlanRecord& r) { r.method = m; }); };
  EXPECT_NE(method(PlanMethod::hierarchy).find("takes nodes and need sets"), std::string::npos);
  EXPECT_EQ(method(b3.method), "");
  w.loads = {10, 9, 9, 7, 7, 6, 5, 3, 1};  // B1: lpt ends at 21
  EXPECT_NE(finding(balance(w).record(), [](PlanRecord& r) { r.method = PlanMethod::lpt; }).find("where lpt puts it"),
            std::string::npos);
  Workload one;
  one.ranks = 1;
  one.loads = {1, 2};
  const PlanRecord alone = balance(one).record();
  EXPECT_NE(finding(alone, [](PlanRecord& r) { r.method = PlanMethod::pairs; }).find("takes two ranks"),
            std::string::npos);
  EXPECT_NE(finding(alone, [](PlanRecord& r) { r.method = PlanMethod::triples; }).find("three ranks"),
            std::string::npos);
  EXPECT_NE(finding(alone, [](PlanRecord& r) { r.method = PlanMethod::exact, r.speeds = {5}; }).find("64 chunks"),
            std::string::npos);
  EXPECT_NE(finding(alone, [](PlanRecord& r) { r.method = PlanMethod::bldm, r.speeds = {5}; }).find("one speed"),
            std::string::npos);
  // Cells and need sets come from the same mask.
  const ColumnMask mask = family_mask(Family::causal_document_8k, 32 << 10, 5);
  const WeightedMask masks[] = {{&mask, 2}};
  const PlanRecord cells = balance(make_workload(masks, {.ranks = 4, .unit = WorkUnit::cells})).record();
  EXPECT_EQ(finding(cells, [](PlanRecord&) {}), "");
  const auto bare = [](PlanRecord& r) { r.chunk_loads.assign(r.chunk_loads.size(), 1); };
  PlanRecord tiny = cells;
  bare(tiny);
  for (std::size_t k = 0; k < tiny.loads.size(); ++k) tiny.loads[k] = 8;
  tiny.peak = tiny.lower_bound = 8, tiny.proven_optimal = true, tiny.bound_by = BoundBy::average;
  EXPECT_NE(finding(tiny, [](PlanRecord&) {}).find("unit is cells, but chunk 0 carries 1 and sees 2"),
            std::string::npos);
}

TEST(Verify, lpt_is_dealt_again_chunk_by_chunk) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Workload w;
    w.ranks = 2 + static_cast<std::int64_t>(seed % 6);
    w.loads = uniform_loads(w.ranks * 4 + static_cast<std::int64_t>(seed % 3), 12, seed);
    for (std::int64_t r = 0; r < w.ranks && seed % 4 == 0; ++r) w.speeds.push_back(3 + r % 3);
    PlanRecord r = balance(w, {.kind = PlanKind::lpt}).record();
    EXPECT_TRUE(verify(r, {}, {}).passed()) << "seed " << seed << ": " << verify(r, {}, {}).findings.front();
    // Two chunks of equal load on two ranks change places: the same loads, another plan.
    for (std::size_t c = 1; c < r.assignment.size(); ++c) {
      if (r.chunk_loads[c] != r.chunk_loads[0] || r.assignment[c] == r.assignment[0]) continue;
      std::swap(r.assignment[0], r.assignment[c]);
      const Verification v = verify(Plan(r).record(), {}, {});
      ASSERT_FALSE(v.passed()) << "seed " << seed;
      EXPECT_NE(v.findings.front().find("where lpt puts it"), std::string::npos) << v.findings.front();
      break;
    }
  }
}

TEST(Verify, one_chunk_more_on_a_slower_rank_is_found) {
  Workload w;
  w.loads = {10, 1, 1};
  w.ranks = 2;
  w.speeds = {100, 90};
  PlanRecord r = balance(w).record();
  ASSERT_TRUE(verify(r, {}, {}).passed());
  r.assignment = {0, 1, 1};  // legal as a plan, but of another problem than the bound speaks of
  r.loads = {10, 2};
  r.peak = r.lower_bound = 10;
  r.proven_optimal = true;
  r.method = PlanMethod::pairs;
  const Verification v = verify(Plan(r).record(), {}, {});
  ASSERT_FALSE(v.passed());
  EXPECT_NE(v.findings.front().find("rank 0 owns 1 chunks, not 2"), std::string::npos) << v.findings.front();
}

TEST(Verify, a_bound_above_the_optimum_is_refuted) {
  Workload w;
  w.loads = {10, 9, 9, 7, 7, 6, 5, 3, 1};
  w.ranks = 3;
  PlanRecord r = balance(w, {.kind = PlanKind::lpt}).record();
  ASSERT_EQ(r.peak, 21);
  r.kind = PlanKind::hcc_ipo;
  r.lower_bound = 21;  // claims that LPT was optimal
  r.proven_optimal = true;
  r.bound_by = BoundBy::search;
  const Verification v = verify(r, {}, {});
  EXPECT_EQ(v.bound, BoundCheck::searched);
  EXPECT_FALSE(v.passed());
}

}  // namespace
}  // namespace flashmask::balancing
