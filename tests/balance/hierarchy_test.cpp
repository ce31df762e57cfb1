// Traffic between nodes: incremental counts, what stage 2 may spend, what it must leave alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "balance/families.hpp"
#include "balance/hierarchy.hpp"
#include "balance/node_company.hpp"
#include "balance/node_traffic.hpp"
#include "balance/node_walk.hpp"
#include "balance/solver.hpp"
#include "balance/starts.hpp"
#include "balance/state.hpp"
#include "balance/traffic.hpp"
#include "balance/traffic_bound.hpp"
#include "balance/verify.hpp"
#include "flashmask/builders.hpp"

namespace flashmask::balancing {
namespace {

NeedSets random_needs(Random& random, std::int64_t batch, std::int64_t chunks, std::int64_t weight) {
  NeedRuns need(batch, chunks, chunks);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < chunks; ++i) {
      for (std::int32_t j = 0; j < chunks; ++j) {
        if (random.below(5) == 0) need.add(b, i, {j, j + 1});
      }
    }
  }
  return NeedSets(std::move(need), weight);
}

TEST(Hierarchy, inbound_counts_after_any_moves_equal_a_fresh_count) {
  Random random(31);
  for (const std::int64_t chunks : {5, 64, 130}) {
    std::vector<NeedSets> needs;
    for (const std::int64_t batch : {2, 1}) needs.push_back(random_needs(random, batch, chunks, 2 * batch - 1));
    const std::int64_t nodes = 3;
    std::vector<std::int32_t> node_of(static_cast<std::size_t>(chunks));
    for (auto& n : node_of) n = static_cast<std::int32_t>(random.below(3));
    NodeTraffic traffic(needs, nodes, node_of);
    for (int move = 0; move < 200; ++move) {
      const std::size_t c = random.below(static_cast<std::uint64_t>(chunks));
      const auto to = static_cast<std::int32_t>(random.below(3));
      if (to == node_of[c]) continue;
      node_of[c] = to;
      traffic.move(static_cast<std::int32_t>(c), to);
      if (move % 20 != 0) continue;
      // One rank a node: ranks are nodes.
      const std::vector<std::int64_t> ranks(node_of.begin(), node_of.end());
      const auto fresh = count_traffic(needs, ranks, nodes, nodes, chunks, 1);
      for (std::int64_t n = 0; n < nodes; ++n) {
        ASSERT_EQ(traffic.inbound(n), fresh.inbound[static_cast<std::size_t>(n)]) << "move " << move;
      }
    }
  }
}

/// One interval a chunk, both ends ascending, the chunk inside.
NeedSets interval_needs(Random& random, std::int64_t chunks, std::int64_t weight) {
  NeedRuns need(1, chunks, chunks);
  std::int64_t begin = 0, end = 0;
  for (std::int64_t i = 0; i < chunks; ++i) {
    begin = std::min<std::int64_t>(i, begin + (random.below(4) == 0 ? random.below(9) : 0));
    end = std::min(chunks, std::max<std::int64_t>(i + 1, end + (random.below(4) == 0 ? random.below(9) : 0)));
    need.add(0, i, {static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end)});
  }
  return NeedSets(std::move(need), weight);
}

TEST(Hierarchy, exchanges_of_stretches_count_intervals_and_scattered_needs_alike) {
  Random random(32);
  for (const bool scattered : {false, true}) {
    for (const std::int64_t chunks : {3, 64, 65, 200}) {
      std::vector<NeedSets> needs;
      for (const std::int64_t weight : {2, 1}) needs.push_back(interval_needs(random, chunks, weight));
      if (scattered) needs.push_back(random_needs(random, 1, chunks, 5));
      const std::int64_t nodes = 3;
      std::vector<std::int32_t> node_of(static_cast<std::size_t>(chunks));
      for (std::size_t c = 0; c < node_of.size(); ++c) {
        node_of[c] = c > 0 && random.below(4) != 0 ? node_of[c - 1] : static_cast<std::int32_t>(random.below(3));
      }
      NodeTraffic traffic(needs, nodes, node_of);
      EXPECT_EQ(traffic.only_intervals(), !scattered);
      for (int move = 0; move < 300; ++move) {
        const auto draw = [&] { return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(chunks))); };
        const std::int32_t x = draw(), y = draw();
        if (traffic.node_of(x) == traffic.node_of(y)) continue;
        std::int32_t length = 1;
        while (length < 6 && std::max(x, y) + length < chunks && traffic.node_of(x + length) == traffic.node_of(x) &&
               traffic.node_of(y + length) == traffic.node_of(y)) {
          ++length;
        }
        if (move % 3 == 0) {
          traffic.exchange(x, y, length);
        } else {
          traffic.propose(x, y, length);
          move % 3 == 1 ? traffic.keep() : traffic.undo();
        }
        const std::vector<std::int64_t> ranks(traffic.nodes().begin(), traffic.nodes().end());
        const auto fresh = count_traffic(needs, ranks, nodes, nodes, chunks, 1);
        for (std::int64_t n = 0; n < nodes; ++n) {
          ASSERT_EQ(traffic.inbound(n), fresh.inbound[static_cast<std::size_t>(n)]) << "move " << move;
        }
      }
    }
  }
}

TEST(Hierarchy, stage_2_spends_at_most_epsilon_and_saves_traffic) {
  for (const Family family : {Family::causal_document_8k, Family::causal_document_32k, Family::prefix_lm_16k}) {
    std::int64_t before = 0, after = 0;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Workload w = family_workload(family, 128 << 10, 16, 2, 77 + seed);
      const Plan plan = balance(w);
      EXPECT_LE(plan.gap(), 0.01) << to_string(family) << " seed " << seed;
      EXPECT_GE(plan.peak(), plan.lower_bound());
      const auto worst = [](const Plan& p) {
        return *std::max_element(p.record().inbound.begin(), p.record().inbound.end());
      };
      after += worst(plan);
      NeedSets need = w.needs[0];
      w.needs.clear();
      const Plan flat = balance(w);
      const auto report = count_traffic({&need, 1}, flat.assignment(), 16, 2, w.columns, w.chunk);
      before += *std::max_element(report.inbound.begin(), report.inbound.end());
    }
    EXPECT_LE(after * 10, before * 7) << to_string(family);
  }
}

TEST(Hierarchy, no_assignment_has_less_inbound_than_its_lower_bound) {
  Random random(33);
  int positive = 0, met = 0;
  for (int draw = 0; draw < 120; ++draw) {
    const std::int64_t nodes = 2 + draw % 2, ranks = nodes == 2 ? 4 : 3;
    const std::int64_t chunks = ranks + random.below(nodes == 2 ? 5 : 6);
    std::vector<NeedSets> needs;
    needs.push_back(draw % 3 == 0 ? random_needs(random, 1, chunks, 2) : interval_needs(random, chunks, 2));
    needs.push_back(interval_needs(random, chunks, 1));
    std::vector<std::int64_t> loads;
    for (std::int64_t c = 0; c < chunks; ++c) loads.push_back(1 + random.below(20));
    const Instance in = make_instance(loads, chunk_counts(chunks, ranks), {});
    const std::int64_t best = solve(in, {}).state.peak(in), target = best + random.below(6);
    const std::int64_t bound = inbound_lower_bound(in, needs, nodes, target);
    std::int64_t least = std::int64_t{1} << 40;
    std::vector<std::int32_t> rank_of(static_cast<std::size_t>(chunks));
    std::vector<std::int32_t> left = in.counts;
    std::vector<std::int64_t> room(static_cast<std::size_t>(ranks), target);
    const auto place = [&](const auto& self, std::size_t c) -> void {
      if (c == rank_of.size()) {
        std::vector<std::int32_t> node_of;
        for (const std::int32_t r : rank_of) node_of.push_back(static_cast<std::int32_t>(r * nodes / ranks));
        least = std::min(least, NodeTraffic(needs, nodes, node_of).worst());
        return;
      }
      for (std::size_t r = 0; r < left.size(); ++r) {
        if (left[r] == 0 || room[r] < in.loads[c]) continue;
        --left[r];
        room[r] -= in.loads[c];
        rank_of[c] = static_cast<std::int32_t>(r);
        self(self, c + 1);
        ++left[r];
        room[r] += in.loads[c];
      }
    };
    place(place, 0);
    ASSERT_LE(bound, least) << "draw " << draw << " target " << target;
    positive += bound > 0;
    met += bound > 0 && bound == least;
  }
  EXPECT_GE(positive, 20);
  EXPECT_GE(met, 5);
}

TEST(Hierarchy, the_inbound_bound_of_a_full_causal_mask_is_what_any_plan_has) {
  const ColumnMask mask = masks::causal({.rows = 16 << 10, .columns = 16 << 10});
  const WeightedMask masks[] = {{&mask, 1}};
  const Workload w = make_workload(masks, {.chunk = 1024, .ranks = 4, .nodes = 2});
  const Instance in = make_instance(w.loads, chunk_counts(16, 4), {});
  EXPECT_EQ(inbound_lower_bound(in, w.needs, 2, in.total), 8);  // the owner of chunk 15 needs 16 and can own 8
}

TEST(Hierarchy, a_full_causal_mask_spends_no_epsilon) {
  const ColumnMask mask = masks::causal({.rows = 128 << 10, .columns = 128 << 10});
  const WeightedMask masks[] = {{&mask, 1}};
  const WorkloadOptions options{.chunk = 1024, .ranks = 16, .nodes = 2};
  const Plan plan = balance(make_workload(masks, options));
  EXPECT_TRUE(plan.proven_optimal()) << plan.peak() << " above " << plan.lower_bound();
}

TEST(Hierarchy, fast_ranks_on_any_node_keep_their_chunk_more_and_their_node) {
  for (const std::uint64_t seed : {5U, 6U}) {
    Workload w = family_workload(Family::causal_document_8k, 123 << 10, 10, 3, seed);
    for (std::int64_t r = 0; r < w.ranks; ++r) w.speeds.push_back(r % 3 == 1 ? 100 : r % 3 == 2 ? 95 : 90);
    const Plan plan = balance(w);
    for (std::int64_t r = 0; r < w.ranks; ++r) EXPECT_EQ(plan.chunks_of(r).size(), r % 3 == 1 ? 13U : 12U);
    EXPECT_LE(plan.gap(), 0.03);
    w.needs.clear();
    Workload turned = w;
    std::reverse(turned.speeds.begin(), turned.speeds.end());
    EXPECT_EQ(balance(turned).peak(), balance(w).peak());
    const Verification v = verify(plan.record(), {}, {});
    EXPECT_TRUE(v.passed()) << v.findings.front();
  }
}

TEST(Hierarchy, where_the_nodes_cannot_be_filled_the_flat_plan_still_loses_traffic) {
  for (const auto& [nodes, seed] : {std::pair{2, 36'000}, std::pair{4, 34'007}}) {
    const Workload w = family_workload(Family::prefix_lm_16k, std::int64_t{nodes} << 16, std::int64_t{nodes} * 8, nodes,
                                       static_cast<std::uint64_t>(seed));
    const PlanRecord r = balance(w).record();
    EXPECT_EQ(r.method, PlanMethod::hierarchy) << seed;
    EXPECT_LE(*std::max_element(r.inbound.begin(), r.inbound.end()), nodes == 2 ? 50 : 175) << seed;  // flat: 62, 186
    const Verification v = verify(r, {}, {});
    EXPECT_TRUE(v.passed()) << v.findings.front();
  }
}

TEST(Hierarchy, the_walk_never_leaves_the_target_nor_adds_traffic) {
  int fewer = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const std::int64_t nodes = 2 + static_cast<std::int64_t>(seed % 3), ranks = nodes * 3;
    Workload w = family_workload(Family::causal_document_8k, (ranks * 5 + static_cast<std::int64_t>(seed % 4)) << 10,
                                 ranks, nodes, seed);
    std::vector<std::int64_t> speeds;
    for (std::int64_t r = 0; r < ranks && seed % 2 == 0; ++r) speeds.push_back(100 - r);
    Random random(seed);
    std::vector<NeedSets> needs = w.needs;
    if (seed % 5 == 0) needs.push_back(random_needs(random, 2, w.chunks(), 3));
    const Instance in = make_instance(w.loads, chunk_counts(w.chunks(), ranks), speeds);
    const State start = lpt(in);
    const std::int64_t target = start.peak(in) + start.peak(in) / 100;
    std::vector<std::int32_t> node_of;
    for (std::int64_t r = 0; r < ranks; ++r) node_of.push_back(static_cast<std::int32_t>(r % nodes));
    const auto worst = [&](const State& s) {
      std::vector<std::int32_t> nodes_of = s.rank_of();
      for (std::int32_t& r : nodes_of) r = node_of[static_cast<std::size_t>(r)];
      return NodeTraffic(needs, nodes, nodes_of).worst();
    };
    const auto walk = [&] {
      Budget budget(20'000, {});
      return walk_nodes(in, needs, nodes, node_of, start, target, seed % 4 == 0 ? 0 : kHotWalk, seed, budget);
    };
    const State end = walk();
    EXPECT_EQ(State(in, end.rank_of()).loads, end.loads) << seed;  // the loads kept are those of the chunks
    EXPECT_EQ(walk().slots, end.slots) << seed;
    EXPECT_LE(end.peak(in), target) << seed;
    EXPECT_LE(worst(end), worst(start)) << seed;
    fewer += worst(end) < worst(start);
  }
  EXPECT_GE(fewer, 20);
}

TEST(Hierarchy, a_node_that_misses_light_chunks_cannot_be_filled) {
  Random random(34);
  int missed = 0;
  for (int draw = 0; draw < 4000; ++draw) {
    // Three nodes of two ranks of four chunks: a third to two thirds heavy and of one load, the others mostly light.
    std::vector<std::int64_t> loads;
    const std::int64_t heavy = 30 + random.below(25), count = 4 + random.below(9);
    while (static_cast<std::int64_t>(loads.size()) < 24) {
      const bool one = static_cast<std::int64_t>(loads.size()) < count;
      loads.push_back(one ? heavy : random.below(3) == 0 ? random.below(40) : random.below(12));
    }
    for (std::size_t c = loads.size() - 1; c > 0; --c) std::swap(loads[c], loads[random.below(c + 1)]);
    const Instance in = make_instance(loads, chunk_counts(24, 6), {});
    const std::int64_t target = lpt(in).peak(in) + random.below(4);
    const Company company(in, target);
    if (!company.applies()) continue;
    for (std::size_t node = 0; node < 3; ++node) {
      if (company.missing(2, company.of(8 * node, 8)) == 0) continue;
      ++missed;
      for (unsigned some = 0; some < 256; ++some) {
        if (std::popcount(some) != 4) continue;
        std::int64_t first = 0, second = 0;
        for (std::size_t i = 0; i < 8; ++i) ((some >> i) & 1U ? first : second) += in.loads[8 * node + i];
        ASSERT_GT(std::max(first, second), target) << "draw " << draw << " node " << node;
      }
    }
  }
  EXPECT_GE(missed, 100);
}

TEST(Hierarchy, the_equal_chunks_of_a_long_prefix_find_light_company) {
  // 118 chunks of 0.47 of a rank, and 266 of 0.32: nodes filled by capacity alone keep 290 of the 640 chunks of the
  // flat plan, and 457 of 703.
  for (const auto& [seed, most] : {std::pair{504'003, 250}, std::pair{504'007, 400}}) {
    const Workload w = family_workload(Family::prefix_lm_16k, 1 << 20, 128, 16, static_cast<std::uint64_t>(seed));
    const PlanRecord r = balance(w).record();
    EXPECT_LE(*std::max_element(r.inbound.begin(), r.inbound.end()), most) << seed;
  }
}

TEST(Hierarchy, trades_of_many_ranks_come_to_their_end) {
  // 300,000 swaps looked at leave ranks above the target, and the walk from the flat plan then 298 of 600 chunks.
  const Workload w = family_workload(Family::prefix_lm_16k, 1 << 20, 128, 16, 502'003);
  const PlanRecord r = balance(w).record();
  EXPECT_LE(*std::max_element(r.inbound.begin(), r.inbound.end()), 265);
}

/// A clock that a look moves on by one tick: what a search does in n ticks is the same on every machine.
std::int64_t ticks = 0;
Deadline::Time ticking() {
  return Deadline::Time(Deadline::Time::duration(++ticks));
}

TEST(Hierarchy, more_time_never_costs_traffic_and_most_of_the_gain_comes_early) {
  for (const Family family : {Family::causal_document_8k, Family::prefix_lm_16k}) {
    const std::int64_t nodes = 4, chunks = nodes * 64;
    const Workload w = family_workload(family, chunks << 10, nodes * 8, nodes, 4711);
    const Instance in = make_instance(w.loads, chunk_counts(chunks, w.ranks), {});
    const Solution flat = solve(in, {});
    const HierarchyOptions options{.nodes = nodes, .epsilon_millionths = 10'000};
    const auto worst_after = [&](std::optional<std::int64_t> time) {
      SolveOptions solving;
      ticks = 0;
      if (time) solving.deadline.emplace(Deadline::Time(Deadline::Time::duration(*time)), ticking);
      Solution best = flat;
      improve_traffic(in, w.needs, options, solving, best);
      EXPECT_LE(best.state.peak(in),
                std::max(flat.state.peak(in), in.normalised(in.original(flat.bound.value) * 101 / 100)));
      std::vector<std::int32_t> node_of = best.state.rank_of();
      for (std::int32_t& r : node_of) r = static_cast<std::int32_t>(r * nodes / w.ranks);
      return NodeTraffic(w.needs, nodes, node_of).worst();
    };
    const std::int64_t without = worst_after({}), plenty = worst_after(std::int64_t{1} << 40), all = ticks + 1;
    EXPECT_LE(plenty, without) << to_string(family);
    std::vector<std::int64_t> left;  // after 1/20, 2/20, ... of the time that everything takes
    for (std::int64_t share = 1; share <= 20; ++share) left.push_back(worst_after(all * share / 20));
    EXPECT_TRUE(std::is_sorted(left.rbegin(), left.rend())) << to_string(family);
    EXPECT_EQ(left.back(), plenty);
    const std::int64_t gain = worst_after(0) - plenty;
    ASSERT_GT(gain, 0);
    EXPECT_GE((worst_after(0) - left[2]) * 2, gain) << to_string(family) << ": " << left[2] << " down to " << plenty;
  }
}

TEST(Hierarchy, the_flat_plan_takes_half_the_time_at_most) {
  // 64 chunks of many digits, four a rank: a proof without end would leave nothing for the traffic.
  Workload w = family_workload(Family::causal_document_8k, 64 << 10, 16, 2, 12);
  w.loads = uniform_loads(64, 1'000'000'000, 12);
  const Instance in = make_instance(w.loads, chunk_counts(64, 16), {});
  SolveOptions solving{.proof_steps = std::int64_t{1} << 40};
  ticks = 0;
  solving.deadline.emplace(Deadline::Time(Deadline::Time::duration(5000)), ticking);
  EXPECT_EQ(solve_on_nodes(in, w.needs, {.nodes = 2, .epsilon_millionths = 10'000}, solving).method,
            PlanMethod::hierarchy);
}

TEST(Hierarchy, the_largest_sum_and_the_largest_epsilon_do_not_overflow) {
  Workload w = family_workload(Family::causal_document_8k, 64 << 10, 8, 2, 3);
  w.loads.assign(w.loads.size(), 1);
  w.loads.back() = 2;
  w.loads.front() = kMostLoad - static_cast<std::int64_t>(w.loads.size());  // a rank's target is nearly 2^62
  const Instance in = make_instance(w.loads, chunk_counts(64, 8), {});
  for (const std::int64_t epsilon : {10'000, 1'000'000}) {
    const Solution best = solve_on_nodes(in, w.needs, {.nodes = 2, .epsilon_millionths = epsilon}, {});
    EXPECT_LE(best.state.peak(in), in.normalised(kMostLoad)) << epsilon;
    EXPECT_EQ(best.state.rank_of().size(), 64U);
  }
}

TEST(Hierarchy, nodes_may_have_different_numbers_of_ranks) {
  Workload w = family_workload(Family::causal_document_8k, 128 << 10, 10, 3, 5);
  const Plan plan = balance(w);
  EXPECT_LE(plan.gap(), 0.02);
  EXPECT_EQ(plan.record().inbound.size(), 3U);
}

}  // namespace
}  // namespace flashmask::balancing
