// Dispatch and undispatch are inverse for every plan kind; positions and labels follow documents, not shards.
#include "flashmask/dispatch.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "flashmask/error.hpp"
#include "overlap/plans.hpp"

namespace flashmask {
namespace {

using testing::causal_documents;
using testing::plan_of;
using Ints = std::vector<std::int64_t>;

Ints counting(std::int64_t n) {
  Ints out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

TEST(Cases, C14_undispatch_of_dispatch_is_the_identity_for_every_plan_kind) {
  const auto mask = causal_documents({16, 16}, 32, 2);
  for (const PlanKind kind : {PlanKind::hcc_ipo, PlanKind::contiguous, PlanKind::dual_chunk,
                              PlanKind::per_document_dual_chunk, PlanKind::lpt}) {
    const Plan plan = plan_of(mask, 4, 2, 2, kind, {16, 16});
    const Ints tensor = counting(2 * 32 * 3);
    std::vector<Shard> shards;
    for (std::int64_t r = 3; r >= 0; --r) {  // in any order
      shards.push_back(dispatch(plan, r, std::as_bytes(std::span(tensor)), 2, 3 * sizeof(std::int64_t)));
    }
    const auto back = undispatch(plan, shards);
    ASSERT_EQ(back.size(), tensor.size() * sizeof(std::int64_t));
    EXPECT_EQ(std::memcmp(back.data(), tensor.data(), back.size()), 0) << to_string(kind);
  }
}

TEST(Cases, C14_a_shard_of_another_plan_is_refused_by_digest) {
  const auto mask = causal_documents({32}, 32);
  const Plan a = plan_of(mask, 4, 1, 2, PlanKind::dual_chunk);
  const Plan b = plan_of(mask, 4, 1, 2, PlanKind::contiguous);
  const Ints tensor = counting(32);
  std::vector<Shard> shards;
  for (std::int64_t r = 0; r < 4; ++r) {
    shards.push_back(dispatch(r == 2 ? b : a, r, std::as_bytes(std::span(tensor)), 1, sizeof(std::int64_t)));
  }
  try {
    (void)undispatch(a, shards);
    FAIL() << "a shard of another plan was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rank 2"), std::string::npos) << e.what();
  }
  shards[2] = shards[1];
  EXPECT_THROW((void)undispatch(a, shards), Error) << "rank 1 came twice";
  shards.pop_back();
  EXPECT_THROW((void)undispatch(a, shards), Error) << "a rank is missing";
}

TEST(Dispatch, ragged_last_chunks_survive_and_wrong_sizes_are_refused) {
  const auto mask = causal_documents({13, 10}, 23);
  const Plan plan = plan_of(mask, 3, 1, 4, PlanKind::hcc_ipo);
  const Ints tensor = counting(23);
  std::vector<Shard> shards;
  for (std::int64_t r = 0; r < 3; ++r) {
    EXPECT_EQ(dispatch<std::int64_t>(plan, r, tensor), global_rows(plan, r));
    shards.push_back(dispatch(plan, r, std::as_bytes(std::span(tensor)), 1, sizeof(std::int64_t)));
  }
  const auto back = undispatch(plan, shards);
  EXPECT_EQ(std::memcmp(back.data(), tensor.data(), back.size()), 0);
  EXPECT_THROW((void)dispatch<std::int64_t>(plan, 0, counting(22)), Error);
  EXPECT_THROW((void)dispatch<std::int64_t>(plan, 3, tensor), Error);
}

TEST(Cases, C13_per_document_dual_chunk_rows_and_positions) {
  const auto mask = causal_documents({4, 4}, 8);
  const Plan plan = plan_of(mask, 2, 1, 1, PlanKind::per_document_dual_chunk, {4, 4});
  const std::vector<Ints> documents{{4, 4}};
  EXPECT_EQ(global_rows(plan, 0), (Ints{0, 3, 4, 7}));
  EXPECT_EQ(global_rows(plan, 1), (Ints{1, 2, 5, 6}));
  const Positions global = global_row_positions(plan, 0);
  EXPECT_EQ(to_string(global.kind), "global_row");
  EXPECT_EQ(global.values, (Ints{0, 3, 4, 7}));
  const Positions inside = in_document_positions(plan, 0, documents);
  EXPECT_EQ(to_string(inside.kind), "in_document");
  EXPECT_EQ(inside.values, (Ints{0, 3, 0, 3}));
  EXPECT_EQ(in_document_positions(plan, 1, documents).values, (Ints{1, 2, 1, 2}));
}

TEST(Dispatch, tree_depth_positions_follow_the_path) {
  const std::vector<masks::TreeNode> nodes{{{}, 2}, {0, 1}, {1, 2}, {1, 1}, {0, 1}, {4, 1}, {4, 2}};
  const Ints depths = masks::prefix_tree_positions(nodes);
  ASSERT_EQ(depths, (Ints{0, 1, 2, 3, 4, 3, 2, 3, 3, 4}));
  const auto mask = causal_documents({10}, 10);
  const Plan plan = plan_of(mask, 2, 1, 2, PlanKind::contiguous);
  const std::vector<Ints> by_batch{depths};
  const Positions second = tree_depth_positions(plan, 1, by_batch);
  EXPECT_EQ(to_string(second.kind), "tree_depth");
  const Ints rows = global_rows(plan, 1);
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(second.values[i], depths[static_cast<std::size_t>(rows[i])]);
}

TEST(Dispatch, documents_longer_than_the_row_are_refused_and_padding_counts_from_zero) {
  const auto mask = causal_documents({3, 3}, 8);
  const Plan plan = plan_of(mask, 1, 1, 2, PlanKind::contiguous);
  const std::vector<Ints> documents{{3, 3}};
  EXPECT_EQ(in_document_positions(plan, 0, documents).values, (Ints{0, 1, 2, 0, 1, 2, 0, 1}));
  const std::vector<Ints> too_long{{3, 6}};
  EXPECT_THROW((void)in_document_positions(plan, 0, too_long), Error);
}

TEST(Cases, C15_labels_roll_inside_documents) {
  const auto mask = causal_documents({4, 4}, 8);
  const Plan plan = plan_of(mask, 2, 1, 2, PlanKind::dual_chunk);  // rows {0,1,6,7} and {2,3,4,5}
  ASSERT_EQ(global_rows(plan, 0), (Ints{0, 1, 6, 7}));
  const Ints tokens = counting(8), documents{4, 4};
  const Ints labels = roll<std::int64_t>(tokens, documents, 1, -100);
  EXPECT_EQ(dispatch<std::int64_t>(plan, 0, labels), (Ints{1, 2, 7, -100}));
  EXPECT_EQ(dispatch<std::int64_t>(plan, 1, labels), (Ints{3, -100, 5, 6}));
}

TEST(Dispatch, roll_reaches_any_distance_and_never_leaves_its_document) {
  const Ints tokens = counting(9), documents{3, 0, 4};  // two tokens of padding
  EXPECT_EQ(roll<std::int64_t>(tokens, documents, 2, -1), (Ints{2, -1, -1, 5, 6, -1, -1, -1, -1}));
  EXPECT_EQ(roll<std::int64_t>(tokens, documents, -1, -1), (Ints{-1, 0, 1, -1, 3, 4, 5, -1, -1}));
  EXPECT_EQ(roll<std::int64_t>(tokens, documents, 0, -1), (Ints{0, 1, 2, 3, 4, 5, 6, -1, -1}));
  EXPECT_EQ(roll<std::int64_t>(tokens, documents, 1000, -1), Ints(9, -1));
  EXPECT_EQ(roll<std::int64_t>(tokens, Ints{100}, -9, -1), Ints(9, -1));
}

}  // namespace
}  // namespace flashmask
