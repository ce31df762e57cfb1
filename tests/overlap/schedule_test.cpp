// Schedules move what is needed, once per node border, and nothing else; every rank can execute them in order.
#include "overlap/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "flashmask/dispatch.hpp"
#include "overlap/layout.hpp"
#include "overlap/plans.hpp"
#include "support/random_mask.hpp"

namespace flashmask::overlap {
namespace {

using flashmask::testing::causal_documents;
using flashmask::testing::plan_of;
using flashmask::testing::Random;

struct Schedules {
  Owners owners;
  RankNeeds needs;
  GatherSchedule gather;
  ReduceSchedule reduce;

  Schedules(const ColumnMask& mask, const Plan& plan, Pruning pruning = Pruning::on,
            const ScheduleOptions& options = {})
      : owners(Owners::of(plan)),
        needs(RankNeeds::build(mask, owners, pruning)),
        gather(schedule_gather(owners, needs, options)),
        reduce(schedule_reduce(owners, needs, gather, options)) {}
};

/// Executes the gather in any fair order: every remote need is filled exactly once, from somebody who has the chunk.
void check_gather(const Schedules& s) {
  std::set<std::tuple<int, int, int>> have;  // rank, batch, chunk
  for (std::int32_t c = 0; c < s.owners.chunks(); ++c) {
    for (std::int32_t b = 0; b < s.needs.batch(); ++b) have.insert({s.owners.rank_of_chunk[c], b, c});
  }
  std::vector<std::array<std::size_t, kLinks>> place(s.owners.ranks, {0, 0});
  std::size_t done = 0;
  std::map<std::tuple<int, int, int>, int> crossings;  // batch, chunk, node
  for (bool moved = true; moved;) {
    moved = false;
    for (std::int32_t r = 0; r < s.owners.ranks; ++r) {
      for (std::size_t lane = 0; lane < kLinks; ++lane) {
        const auto& list = s.gather.sends[r][lane];
        while (place[r][lane] < list.size()) {
          const Transfer& t = s.gather.transfers[list[place[r][lane]]];
          ASSERT_EQ(t.from, r);
          ASSERT_EQ(static_cast<std::size_t>(t.link), lane);
          ASSERT_EQ(t.link == Link::inside, s.owners.node_of(t.from) == s.owners.node_of(t.to));
          if (!have.contains({t.from, t.batch, t.chunk})) break;  // a relay waits; so does what is behind it
          ASSERT_TRUE(s.needs.needs(t.to, t.batch, t.chunk)) << "somebody gets a chunk that it does not need";
          ASSERT_TRUE(have.insert({t.to, t.batch, t.chunk}).second) << "sent twice";
          if (t.link == Link::between) ++crossings[{t.batch, t.chunk, s.owners.node_of(t.to)}];
          ++place[r][lane], ++done;
          moved = true;
        }
      }
    }
  }
  ASSERT_EQ(done, s.gather.transfers.size()) << "the gather cannot end";
  for (std::int32_t r = 0; r < s.owners.ranks; ++r) {
    for (std::int32_t b = 0; b < s.needs.batch(); ++b) {
      for (const auto c : s.needs.chunks_of(r, b)) ASSERT_TRUE(have.contains({r, b, c})) << "a need is not filled";
      auto visit = s.gather.visits[r][b];
      std::sort(visit.begin(), visit.end());
      ASSERT_EQ(visit, s.needs.chunks_of(r, b));
      visit = s.reduce.visits[r][b];
      std::sort(visit.begin(), visit.end());
      ASSERT_EQ(visit, s.needs.chunks_of(r, b));
    }
  }
  for (const auto& [key, n] : crossings) ASSERT_EQ(n, 1) << "a chunk crosses a node border more than once";
}

/// Executes the reduce with sets of contributing ranks instead of sums: the owner ends with every needer exactly once.
void check_reduce(const Schedules& s, bool one_crossing = true) {
  std::map<int, std::multiset<int>> sent;  // transfer -> contributions
  std::map<std::pair<int, int>, std::multiset<int>> at_owner;
  std::map<std::tuple<int, int, int>, int> crossings;
  std::vector<int> executed(s.reduce.transfers.size(), 0);
  for (std::size_t i = 0; i < s.reduce.transfers.size(); ++i) {
    const Transfer& t = s.reduce.transfers[i];
    ASSERT_EQ(s.reduce.inbound[t.to][t.inbound], static_cast<int>(i));
    if (t.link == Link::between) ++crossings[{t.batch, t.chunk, s.owners.node_of(t.from)}];
    sent[static_cast<int>(i)] = {t.from};
  }
  for (const bool owner : {false, true}) {
    for (std::int32_t r = 0; r < s.owners.ranks; ++r) {
      for (const Combine& combine : s.reduce.combines[r]) {
        if (combine.owner != owner) continue;
        std::multiset<int> sum;
        if (s.needs.needs(r, combine.batch, combine.chunk)) sum.insert(r);
        for (const auto i : combine.inputs) {
          ASSERT_EQ(s.reduce.transfers[i].to, r);
          ASSERT_EQ(s.reduce.transfers[i].chunk, combine.chunk);
          sum.insert(sent[i].begin(), sent[i].end());
          ++executed[i];
        }
        if (combine.output >= 0) sent[combine.output] = sum;
        if (owner) at_owner[{combine.batch, combine.chunk}] = sum;
      }
    }
  }
  for (std::int32_t b = 0; b < s.needs.batch(); ++b) {
    for (std::int32_t c = 0; c < s.owners.chunks(); ++c) {
      const auto& wanted = s.needs.ranks_needing(b, c);
      const auto& sum = at_owner[{b, c}];
      ASSERT_EQ(std::vector<int>(sum.begin(), sum.end()), wanted) << "batch " << b << " chunk " << c;
    }
  }
  for (const int n : executed) ASSERT_EQ(n, 1);
  for (const auto& [key, n] : crossings) ASSERT_TRUE(n == 1 || !one_crossing);
}

std::int64_t rows_over(const Schedules& s, const std::vector<Transfer>& transfers, Link link) {
  std::int64_t rows = 0;
  for (const auto& of_rank : rows_sent(s.owners, transfers)) rows += of_rank[static_cast<std::size_t>(link)];
  return rows;
}

TEST(Schedule, random_plans_move_every_need_once_and_as_much_as_the_plan_says) {
  for (int draw = 0; draw < 200; ++draw) {
    Random random(static_cast<std::uint64_t>(500 + draw));
    const auto rows = random.integer(1, 80);
    const auto mask = flashmask::testing::random_mask({random.integer(1, 2), random.integer(1, 2), rows, rows}, random);
    const auto ranks = random.integer(1, 12);
    const auto nodes = random.integer(1, std::min<std::int64_t>(ranks, 4));
    const Plan plan =
        plan_of(mask, ranks, nodes, random.integer(1, 9), random.one_in(2) ? PlanKind::hcc_ipo : PlanKind::contiguous);
    ScheduleOptions options;
    if (random.one_in(3)) options.landing = Landing::lowest;
    const Schedules s(mask, plan, Pruning::on, options);
    check_gather(s);
    check_reduce(s);
    if (::testing::Test::HasFatalFailure()) FAIL() << "draw " << draw;
    EXPECT_EQ(rows_over(s, s.gather.transfers, Link::between), plan.traffic().inter_rows);
    EXPECT_EQ(rows_over(s, s.gather.transfers, Link::inside), plan.traffic().intra_rows);
    EXPECT_EQ(rows_over(s, s.reduce.transfers, Link::between), plan.traffic().inter_rows);
    EXPECT_EQ(rows_over(s, s.reduce.transfers, Link::inside), plan.traffic().intra_rows);
  }
}

TEST(Schedule, direct_routing_crosses_once_per_rank_and_no_pruning_moves_everything) {
  const auto mask = causal_documents({11, 3, 18}, 32);
  const Plan plan = plan_of(mask, 4, 2, 2, PlanKind::dual_chunk);
  ScheduleOptions direct;
  direct.routing = Routing::direct;
  const Schedules everything(mask, plan, Pruning::off), each(mask, plan, Pruning::off, direct);
  check_gather(everything);
  check_reduce(everything);
  check_reduce(each, /*one_crossing=*/false);
  EXPECT_EQ(rows_over(everything, everything.gather.transfers, Link::between), 32);
  EXPECT_EQ(rows_over(everything, everything.gather.transfers, Link::inside), 32 + 32);
  EXPECT_EQ(rows_over(each, each.gather.transfers, Link::between), 2 * 32);
  EXPECT_EQ(rows_over(each, each.gather.transfers, Link::inside), 32);
}

TEST(Schedule, landings_are_shared_out_or_go_to_the_lowest_needing_rank) {
  const auto mask = masks::full({1, 1, 32, 32});
  const Plan plan = plan_of(mask, 8, 2, 2, PlanKind::contiguous);
  ScheduleOptions lowest;
  lowest.landing = Landing::lowest;
  const Schedules balanced(mask, plan), low(mask, plan, Pruning::on, lowest);
  std::map<int, int> landed, landed_low;
  for (const Transfer& t : balanced.gather.transfers) landed[t.to] += t.link == Link::between;
  for (const Transfer& t : low.gather.transfers) landed_low[t.to] += t.link == Link::between;
  for (int r = 0; r < 8; ++r) {
    EXPECT_EQ(landed[r], 2);
    EXPECT_EQ(landed_low[r], r % 4 == 0 ? 8 : 0);
  }
}

TEST(Cases, C9_contiguous_documents_move_nothing) {
  const auto mask = causal_documents({4, 4, 4, 4}, 16);
  const Plan plan = plan_of(mask, 4, 1, 2, PlanKind::contiguous);
  const Schedules s(mask, plan);
  EXPECT_TRUE(s.gather.transfers.empty());
  EXPECT_TRUE(s.reduce.transfers.empty());
  for (const auto load : plan.loads()) EXPECT_EQ(load, 10);
  const Schedules unpruned(mask, plan, Pruning::off);
  EXPECT_EQ(unpruned.gather.transfers.size(), 24U);
}

ColumnMask c10_mask() {
  const std::int32_t lts[] = {4, 4, 8, 8, 8, 8, 8, 8}, ute[] = {0, 0, 8, 8, 0, 0, 0, 0};
  ColumnMask mask({1, 1, 8, 8});
  for (int j = 0; j < 8; ++j) mask.set(0, 0, j, {lts[j], 8, 0, ute[j]});
  mask.canonicalise();
  return mask;
}

TEST(Cases, C10_exact_needs_prune_what_minmax_calls_partial) {
  const auto mask = c10_mask();
  const TileMap map = TileMap::build(mask, {4, 4}, TileRule::minmax);
  EXPECT_EQ(map.at(0, 0, 1, 0), TileClass::partial);
  const Plan plan = plan_of(mask, 2, 1, 4, PlanKind::contiguous);
  const Schedules s(mask, plan);
  EXPECT_FALSE(s.needs.needs(1, 0, 0));
  for (const Transfer& t : s.gather.transfers) EXPECT_NE(t.to, 1);
}

TEST(Cases, C11_loads_and_needs_by_batch_row) {
  const std::vector<ColumnMask> parts{causal_documents({16}, 16), causal_documents({4, 4, 4, 4}, 16)};
  const auto mask = masks::stack_batch(parts);
  const Plan plan = plan_of(mask, 4, 2, 2, PlanKind::dual_chunk);
  const Plan first = plan_of(parts[0], 4, 2, 2, PlanKind::dual_chunk);
  const Plan second = plan_of(parts[1], 4, 2, 2, PlanKind::dual_chunk);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(first.loads()[r], 34);
    EXPECT_EQ(second.loads()[r], 10);
    EXPECT_EQ(plan.loads()[r], 44);
  }
  const Schedules s(mask, plan);
  check_gather(s);
  // Batch row 1 moves a chunk only to ranks that own the other half of its document.
  for (const Transfer& t : s.gather.transfers) {
    if (t.batch == 0) continue;
    const auto& own = s.owners.chunks_of[t.to];
    EXPECT_TRUE(std::any_of(own.begin(), own.end(), [&](std::int32_t c) { return c / 2 == t.chunk / 2; }));
  }
}

TEST(Cases, C12_any_number_of_ranks) {
  using Layouts = std::initializer_list<std::pair<std::int64_t, std::int64_t>>;
  for (const auto& [ranks, nodes] :
       Layouts{{3, 3}, {5, 2}, {6, 3}, {12, 2}, {31, 4}, {32, 4}, {33, 3}, {63, 3}, {64, 8}, {65, 5}}) {
    const auto rows = ranks * 4 + 3;
    const auto mask = causal_documents({rows / 3, rows / 2}, rows);
    for (const PlanKind kind : {PlanKind::hcc_ipo, PlanKind::dual_chunk, PlanKind::contiguous}) {
      const Plan plan = plan_of(mask, ranks, nodes, 2, kind);
      std::vector<std::int64_t> rows_seen;
      for (std::int64_t r = 0; r < ranks; ++r) {
        const auto mine = global_rows(plan, r);
        rows_seen.insert(rows_seen.end(), mine.begin(), mine.end());
      }
      std::sort(rows_seen.begin(), rows_seen.end());
      ASSERT_EQ(static_cast<std::int64_t>(rows_seen.size()), rows);
      for (std::int64_t i = 0; i < rows; ++i) ASSERT_EQ(rows_seen[i], i) << "the routing map is no permutation";
      const Schedules s(mask, plan);
      check_gather(s);
      check_reduce(s);
      // Every flag of a rank stands for one thing.
      const Layout layout = Layout::build(s.owners, s.needs, s.reduce);
      const WordLayout words{s.needs.batch() * s.owners.chunks(), s.owners.chunks(), s.owners.ranks,
                             layout.most_inbound};
      std::set<std::int64_t> flags;
      for (std::int32_t c = 0; c < s.owners.chunks(); ++c) {
        for (const auto flag : {words.gathered(0, c), words.ready(0, c), words.combined(0, c)})
          ASSERT_TRUE(flags.insert(flag).second);
      }
      for (std::int32_t i = 0; i < layout.most_inbound; ++i) ASSERT_TRUE(flags.insert(words.arrived(i)).second);
      for (std::int32_t r = 0; r < s.owners.ranks; ++r) ASSERT_TRUE(flags.insert(words.released(r)).second);
      ASSERT_TRUE(flags.insert(words.attended()).second && flags.insert(words.summed()).second);
      ASSERT_EQ(*flags.rbegin() + 1, words.count());
    }
  }
}

TEST(Layout, slots_are_compact_ascending_disjoint_and_only_for_what_is_needed) {
  for (int draw = 0; draw < 100; ++draw) {
    Random random(static_cast<std::uint64_t>(900 + draw));
    const auto rows = random.integer(1, 60);
    const auto mask = flashmask::testing::random_mask({random.integer(1, 3), 1, rows, rows}, random);
    const Plan plan = plan_of(mask, random.integer(1, 6), 1, random.integer(1, 7), PlanKind::hcc_ipo);
    const Schedules s(mask, plan);
    const Layout layout = Layout::build(s.owners, s.needs, s.reduce);
    for (std::int32_t r = 0; r < s.owners.ranks; ++r) {
      const RankSlots& slots = layout.slots[r];
      std::vector<int> used(slots.rows, 0);
      for (std::int32_t b = 0; b < s.needs.batch(); ++b) {
        std::int64_t next = b * slots.columns;
        for (std::int32_t c = 0; c < s.owners.chunks(); ++c) {
          const auto at = slots.row_of[b][c];
          const bool sends = s.owners.rank_of_chunk[c] == r && !s.needs.ranks_needing(b, c).empty();
          ASSERT_EQ(at >= 0, s.needs.needs(r, b, c) || sends);
          if (at < 0) continue;
          if (s.needs.needs(r, b, c)) {
            ASSERT_EQ(at, next);
            next += s.owners.rows_of(c);
          }
          for (std::int64_t i = 0; i < s.owners.rows_of(c); ++i) ASSERT_EQ(used[at + i]++, 0) << "slots overlap";
        }
        ASSERT_EQ(next - b * slots.columns, slots.column_counts[b]);
      }
    }
  }
}

}  // namespace
}  // namespace flashmask::overlap
