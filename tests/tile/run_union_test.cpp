// The union of need sets against a bitmap, by both of its ways.
#include "tile/run_union.hpp"

#include <gtest/gtest.h>

#include <random>

namespace flashmask::tile {
namespace {

TEST(RunUnion, equals_a_bitmap_in_few_and_in_many_runs) {
  std::mt19937 random(7);
  const auto below = [&](std::int32_t n) { return static_cast<std::int32_t>(random() % static_cast<unsigned>(n)); };
  RunUnion set(100);
  for (int draw = 0; draw < 2000; ++draw) {
    std::vector<ChunkRun> runs;
    std::vector<bool> wanted(100, false);
    for (int n = below(draw % 2 == 0 ? 12 : 60); n > 0; --n) {  // sorting up to a run for 8 chunks, then counting
      const std::int32_t begin = below(100);
      runs.push_back({begin, begin + 1 + below(std::min(100 - begin, 1 + below(20)))});
      std::fill(wanted.begin() + runs.back().begin, wanted.begin() + runs.back().end, true);
    }
    set.clear();
    const std::size_t half = runs.size() / 2;
    set.add(std::span(runs).first(half));
    if (draw % 3 == 0) (void)set.merged();  // more may come afterwards
    set.add(std::span(runs).subspan(half));
    std::vector<bool> got(100, false);
    std::int32_t end = -1;
    for (const ChunkRun& run : set.merged()) {
      ASSERT_TRUE(run.begin > end && run.begin < run.end) << "draw " << draw << ": a run touches the one before it";
      std::fill(got.begin() + run.begin, got.begin() + run.end, true);
      end = run.end;
    }
    ASSERT_EQ(got, wanted) << "draw " << draw;
  }
  set.clear();
  EXPECT_TRUE(set.merged().empty());
}

}  // namespace
}  // namespace flashmask::tile
