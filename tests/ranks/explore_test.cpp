// The whole step under a scheduler that decides who runs next, and under faults: right results or a named error.
#include <gtest/gtest.h>

#include "ranks/ranks_support.hpp"

namespace flashmask {
namespace {

using std::int64_t;
using testing::Call;
using testing::causal_documents;
using testing::plan_of;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSystematicRuns = 60, kRandomRuns = 20;
#else
constexpr int kSystematicRuns = 600, kRandomRuns = 120;
#endif

struct Problem {
  ColumnMask mask;
  Plan plan;
  AttentionShape shape;
  std::vector<std::uint8_t> expected;

  Problem(const std::vector<int64_t>& documents, int64_t rows, int64_t ranks, int64_t nodes)
      : mask(causal_documents(documents, rows)),
        plan(plan_of(mask, ranks, nodes, 1, PlanKind::dual_chunk)),
        shape{1, rows, rows, 1, 1, 2} {
    Call call(shape, mask, DType::f32);
    comm::LocalWorld world(testing::world_options(plan));
    testing::run_on_ranks(call, plan, world, {}, 2);
    testing::expect_matches_oracle(call);
    expected = call.result_bytes();
  }

  /// Two steps, so that the second reuses every buffer of the first.
  void run(comm::Interleaver& interleaver) const {
    Call call(shape, mask, DType::f32);
    auto options = testing::world_options(plan);
    options.interleaver = &interleaver;
    comm::LocalWorld world(options);
    testing::run_on_ranks(call, plan, world, {}, 2);
    ASSERT_EQ(call.result_bytes(), expected);
  }
};

void explore_systematically(const Problem& problem, std::size_t preemptions) {
  comm::SystematicChoices choices(preemptions);
  int runs = 0;
  do {
    comm::Interleaver interleaver(choices);
    problem.run(interleaver);
    ++runs;
  } while (!::testing::Test::HasFatalFailure() && runs < kSystematicRuns && choices.advance());
  EXPECT_GT(runs, 1);
}

TEST(Interleavings, two_ranks_give_the_same_bits_in_systematic_order) {
  explore_systematically(Problem({2, 1}, 3, 2, 1), 1);
}

TEST(Interleavings, three_ranks_on_two_nodes_give_the_same_bits_in_systematic_order) {
  explore_systematically(Problem({3, 2}, 5, 3, 2), 1);
}

TEST(Interleavings, four_ranks_on_two_nodes_give_the_same_bits_in_random_order) {
  const Problem problem({5, 3}, 8, 4, 2);
  for (int seed = 0; seed < kRandomRuns && !::testing::Test::HasFatalFailure(); ++seed) {
    comm::RandomChoices choices(static_cast<std::uint64_t>(seed));
    comm::Interleaver interleaver(choices);
    problem.run(interleaver);
  }
}

/// Drops the n-th message of a step, for every n: an error that names a wait, or (a release of the last call) success.
TEST(Faults, any_dropped_message_ends_in_a_named_error_or_changes_nothing) {
  const auto mask = causal_documents({7, 5}, 12);
  const Plan plan = plan_of(mask, 4, 2, 2, PlanKind::dual_chunk);
  Call clean({1, 12, 12, 1, 1, 4}, mask, DType::f32);
  std::atomic<int> messages{0};
  {
    auto options = testing::world_options(plan);
    options.faults = [&](const comm::MessageInfo&) {
      ++messages;
      return comm::Fault{};
    };
    comm::LocalWorld world(options);
    testing::run_on_ranks(clean, plan, world);
  }
  ASSERT_GT(messages, 10);
  int errors = 0;
  for (int victim = 0; victim < messages; ++victim) {
    auto options = testing::world_options(plan);
    options.deadline = std::chrono::milliseconds(120);
    std::atomic<int> count{0};
    std::atomic<bool> was_data{false};
    options.faults = [&](const comm::MessageInfo& m) {
      if (count++ != victim) return comm::Fault{};
      was_data = m.tag.stage != Stage::control;
      return comm::Fault{comm::Fault::Kind::dropped};
    };
    comm::LocalWorld world(options);
    Call call({1, 12, 12, 1, 1, 4}, mask, DType::f32);
    try {
      testing::run_on_ranks(call, plan, world);
      EXPECT_FALSE(was_data) << "message " << victim << " carried data, was lost, and nobody noticed";
      EXPECT_EQ(call.result_bytes(), clean.result_bytes());
    } catch (const Error& e) {
      ++errors;
      const std::string text = e.what();
      EXPECT_EQ(e.code(), ErrorCode::timeout);
      EXPECT_NE(text.find("rank "), std::string::npos) << text;
      EXPECT_NE(text.find("word "), std::string::npos) << text;
      EXPECT_NE(text.find("expected "), std::string::npos) << text;
      EXPECT_TRUE(!was_data || text.find("chunk ") != std::string::npos) << text;
    }
  }
  EXPECT_GT(errors, 10);
}

TEST(Faults, a_message_later_than_the_deadline_is_an_error_and_an_earlier_one_is_not) {
  const auto mask = causal_documents({7, 5}, 12);
  const Plan plan = plan_of(mask, 2, 1, 2, PlanKind::dual_chunk);
  for (const bool too_late : {false, true}) {
    auto options = testing::world_options(plan);
    if (too_late) options.deadline = std::chrono::milliseconds(50);
    options.faults = [&](const comm::MessageInfo& m) {
      return m.tag.stage == Stage::reduce
                 ? comm::Fault{comm::Fault::Kind::late, std::chrono::milliseconds(too_late ? 2000 : 5)}
                 : comm::Fault{};
    };
    comm::LocalWorld world(options);
    Call call({1, 12, 12, 1, 1, 4}, mask, DType::f32);
    if (too_late) {
      EXPECT_THROW(testing::run_on_ranks(call, plan, world), Error);
    } else {
      testing::run_on_ranks(call, plan, world);
      testing::expect_matches_oracle(call);
    }
  }
}

}  // namespace
}  // namespace flashmask
