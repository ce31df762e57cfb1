// The interleaver finds what it is for: an order in which a wrong protocol fails, and a deadlock.
#include <gtest/gtest.h>

#include <set>

#include "comm/local/world.hpp"
#include "flashmask/error.hpp"

namespace flashmask::comm {
namespace {

/// Rank 0 sends two messages to rank 1, which reads them. `guarded`: rank 0 waits until the first was read before it
/// overwrites it. Returns what rank 1 read as a pair.
std::pair<int, int> overwrite(Interleaver& interleaver, bool guarded) {
  LocalOptions options;
  options.ranks = 2;
  options.interleaver = &interleaver;
  LocalWorld world(options);
  std::pair<int, int> seen;
  run_ranks_or_throw(world, [&](Communicator& c) {
    const auto buffer = c.allocate_buffer(sizeof(int));
    const auto words = c.allocate_words(2);
    const auto stream = c.make_stream("test");
    c.all_gather({}, {});
    if (c.rank() == 0) interleaver.explore();
    const int values[2] = {1, 2};
    for (std::uint64_t call = 1; call <= 2; ++call) {
      if (c.rank() == 0) {
        if (guarded) c.wait(*stream, {{words, 1}, call - 1, 1, {}});
        c.put(*stream,
              {1, buffer, 0, reinterpret_cast<const std::byte*>(&values[call - 1]), sizeof(int), {words, 0}, call, {}});
      } else {
        c.await({{words, 0}, call, 0, {}});
        (call == 1 ? seen.first : seen.second) = *reinterpret_cast<const int*>(c.buffer(buffer));
        c.signal(*stream, 0, {words, 1}, call, {});
      }
    }
    c.synchronise(*stream);
  });
  return seen;
}

std::set<std::pair<int, int>> all_results(bool guarded, std::int64_t& runs) {
  std::set<std::pair<int, int>> results;
  SystematicChoices choices(1);
  do {
    Interleaver interleaver(choices);
    results.insert(overwrite(interleaver, guarded));
    ++runs;
  } while (choices.advance());
  return results;
}

TEST(Interleaver, systematic_search_finds_the_overwritten_buffer_and_clears_the_guarded_one) {
  std::int64_t runs = 0, guarded_runs = 0;
  const auto unguarded = all_results(false, runs);
  EXPECT_TRUE(unguarded.contains({1, 2}));
  EXPECT_TRUE(unguarded.contains({2, 2})) << "the race was not found in " << runs << " runs";
  EXPECT_EQ(all_results(true, guarded_runs), (std::set<std::pair<int, int>>{{1, 2}}));
  EXPECT_GT(runs, 10);
  EXPECT_GT(guarded_runs, 10);
}

TEST(Interleaver, random_search_finds_it_too) {
  bool found = false;
  for (std::uint64_t seed = 0; seed < 200 && !found; ++seed) {
    RandomChoices choices(seed);
    Interleaver interleaver(choices);
    found = overwrite(interleaver, false).first == 2;
  }
  EXPECT_TRUE(found);
}

TEST(Interleaver, a_cycle_of_waits_is_reported_as_a_deadlock_at_once) {
  RandomChoices choices(1);
  Interleaver interleaver(choices);
  LocalOptions options;
  options.ranks = 2;
  options.interleaver = &interleaver;
  LocalWorld world(options);
  const auto errors = run_ranks(world, [&](Communicator& c) {
    const auto words = c.allocate_words(2);
    const auto stream = c.make_stream("test");
    c.await({{words, 1 - c.rank()}, 1, 1 - c.rank(), {Stage::reduce, 0, 4}});
    c.signal(*stream, 1 - c.rank(), {words, c.rank()}, 1, {});
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::timeout);
      const std::string text = e.what();
      EXPECT_NE(text.find("deadlock"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 0 waits in stage reduce for chunk 4"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1 waits"), std::string::npos) << text;
    }
  }
}

TEST(Interleaver, systematic_choices_enumerate_every_sequence_once) {
  SystematicChoices choices(100);
  std::set<std::vector<std::size_t>> seen;
  do {
    std::vector<std::size_t> sequence;
    sequence.push_back(choices.choose(2, true));
    sequence.push_back(choices.choose(sequence[0] == 0 ? 3 : 1 + 1, false));
    EXPECT_TRUE(seen.insert(sequence).second);
  } while (choices.advance());
  EXPECT_EQ(seen.size(), 5U);
}

}  // namespace
}  // namespace flashmask::comm
