// Trades between nodes.
#include <gtest/gtest.h>

#include <tuple>
#include <utility>
#include <vector>

#include "balance/families.hpp"
#include "balance/node_traffic.hpp"
#include "balance/repair.hpp"
#include "balance/starts.hpp"

namespace flashmask::balancing {
namespace {

TEST(Trades, a_remembered_trade_that_failed_would_fail_again) {
  const std::int64_t nodes = 4, ranks = 32, chunks = 256;
  const Workload w = family_workload(Family::causal_document_32k, chunks << 10, ranks, nodes, 613'001);
  const Instance in = make_instance(w.loads, chunk_counts(chunks, ranks), {});
  std::vector<std::int32_t> rank_of, node_of;  // consecutive: far from the target
  for (std::int32_t c = 0; c < chunks; ++c) rank_of.push_back(c / 8), node_of.push_back(c / 64);
  const std::int64_t target = lpt(in).peak(in);
  NodeTraffic traffic(w.needs, nodes, node_of);
  TradeMemo memo(ranks);
  Budget plenty(std::int64_t{1} << 40, {});
  int failed = 0, remembered = 0;
  for (std::int64_t call = 0; call < 600; ++call) {
    const std::int64_t hot = call * 7 % ranks;
    const int count = 1 + static_cast<int>(call % 3 == 0);
    const State state(in, rank_of);
    TradeMemo fresh(ranks);
    for (std::int64_t r = 0; r < ranks; ++r) remembered += !memo.open(hot, r, count);
    const Trade known = best_trade(in, state, hot, target, count, memo, traffic, plenty);
    const Trade asked = best_trade(in, state, hot, target, count, fresh, traffic, plenty);
    ASSERT_EQ(std::tie(known.count, known.mine, known.theirs), std::tie(asked.count, asked.mine, asked.theirs)) << call;
    failed += known.count == 0;
    if (known.count == 0) continue;
    apply(known, traffic);
    for (const std::int32_t c : {known.mine[0], known.theirs[0]}) memo.change(rank_of[static_cast<std::size_t>(c)]);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      std::swap(rank_of[static_cast<std::size_t>(known.mine[i])], rank_of[static_cast<std::size_t>(known.theirs[i])]);
    }
  }
  EXPECT_GE(failed, 50);
  EXPECT_GE(remembered, 1000);
}

}  // namespace
}  // namespace flashmask::balancing
