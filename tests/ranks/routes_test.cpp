// Many calls, many ranks on many nodes, routes made once for all of them; and a step in which nothing moves.
#include <gtest/gtest.h>

#include "ranks/ranks_support.hpp"

namespace flashmask {
namespace {

using testing::Call;
using testing::causal_documents;
using testing::LocalCall;
using testing::plan_of;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // a tenth of the speed
#else
constexpr bool kSanitized = false;
#endif

/// Forward and backward on every rank with routes that all share.
void run_shared(Call& call, const Plan& plan, const ContextParallelOptions& options = {}) {
  const ContextParallelRoutes routes(call.mask, plan, options);
  comm::LocalWorld world(testing::world_options(plan));
  comm::run_ranks_or_throw(world, [&](Communicator& communicator) {
    ContextParallel context(call.mask, plan, communicator, testing::shape_of(call), options, routes);
    LocalCall local(call, plan, communicator.rank());
    local.forward(context, call.scale);
    local.backward(context, call.scale);
    local.store(call);
  });
}

TEST(Cases, C9_contiguous_documents_run_without_a_byte_sent) {
  const auto mask = causal_documents({4, 4, 4, 4}, 16);
  const Plan plan = plan_of(mask, 4, 2, 2, PlanKind::contiguous);
  Call call({1, 16, 16, 2, 1, 8}, mask, DType::bf16);
  comm::LocalWorld world(testing::world_options(plan));
  for (const PlannedTraffic& planned : testing::run_on_ranks(call, plan, world)) {  // sent = planned is checked there
    for (std::size_t link = 0; link < kLinks; ++link) {
      EXPECT_EQ(planned.gather_bytes[link], 0);
      EXPECT_EQ(planned.reduce_bytes[link], 0);
    }
  }
  testing::expect_matches_oracle(call);
}

constexpr int kBackToBack = kSanitized ? 100 : 1000;

/// Outputs of many forwards, each with its backward, on keys and values that change from call to call.
std::vector<std::vector<std::uint8_t>> many_calls(const Plan& plan, const ColumnMask& mask, bool synchronised) {
  std::vector<std::vector<std::uint8_t>> outputs(static_cast<std::size_t>(plan.ranks()));
  const Call call({1, mask.shape().rows, mask.shape().columns, 1, 1, 4}, mask, DType::f32);
  comm::LocalWorld world(testing::world_options(plan));
  comm::run_ranks_or_throw(world, [&](Communicator& communicator) {
    ContextParallel context(mask, plan, communicator, testing::shape_of(call));
    LocalCall local(call, plan, communicator.rank());
    auto& mine = outputs[static_cast<std::size_t>(communicator.rank())];
    for (int i = 0; i < kBackToBack; ++i) {
      if (synchronised) communicator.all_gather({}, {});
      for (auto* t : {&local.k, &local.v}) {
        t->for_each([&](auto b, auto row, auto h, auto d) {
          t->set(b, row, h, d, static_cast<float>((i * 7 + row * 3 + d) % 11) - 5.0F);
        });
      }
      local.forward(context);
      local.backward(context);
      for (const auto* t : {&local.out, &local.dq, &local.dk, &local.dv}) {
        mine.insert(mine.end(), t->bytes().begin(), t->bytes().end());
      }
    }
  });
  return outputs;
}

TEST(Cases, C17_back_to_back_calls_equal_synchronised_ones) {
  const auto mask = causal_documents({9, 4, 10}, 23);
  const Plan plan = plan_of(mask, 4, 2, 2, PlanKind::dual_chunk);
  EXPECT_TRUE(many_calls(plan, mask, false) == many_calls(plan, mask, true));
}

TEST(Cases, C12_odd_numbers_of_ranks_on_several_nodes_run_to_the_right_results) {
  for (const auto& [ranks, nodes] : {std::pair<std::int64_t, std::int64_t>{31, 4}, {65, 5}}) {
    const auto rows = ranks * 4 + 3;
    const auto mask = causal_documents({rows / 3, rows / 2}, rows);
    Call call({1, rows, rows, 2, 1, 8}, mask, DType::bf16);
    run_shared(call, plan_of(mask, ranks, nodes, 2, PlanKind::dual_chunk));
    testing::expect_matches_oracle(call);
  }
}

TEST(Routes, shared_ones_give_the_bits_of_those_each_rank_makes) {
  const auto mask = causal_documents({20, 31, 13}, 64);
  const Plan plan = plan_of(mask, 5, 2, 4, PlanKind::hcc_ipo);
  for (const bool prune : {true, false}) {
    ContextParallelOptions options;
    options.prune = prune;
    Call own({1, 64, 64, 2, 1, 8}, mask, DType::bf16), shared = own;
    comm::LocalWorld world(testing::world_options(plan));
    testing::run_on_ranks(own, plan, world, options);
    run_shared(shared, plan, options);
    EXPECT_TRUE(own.out.bytes() == shared.out.bytes());
    EXPECT_TRUE(own.dq.bytes() == shared.dq.bytes());
    EXPECT_TRUE(own.dk.bytes() == shared.dk.bytes());
    EXPECT_TRUE(own.dv.bytes() == shared.dv.bytes());
  }
}

TEST(Routes, of_another_mask_plan_or_option_are_refused) {
  const auto mask = causal_documents({20, 12}, 32), other_mask = causal_documents({12, 20}, 32);
  const Plan plan = plan_of(mask, 2, 1, 4, PlanKind::contiguous);
  const Plan other_plan = plan_of(mask, 2, 1, 4, PlanKind::dual_chunk);
  ContextParallelOptions direct, unpruned;
  direct.routing = Routing::direct;
  unpruned.prune = false;
  const auto refused = [&](const ContextParallelRoutes& routes, const char* word) {
    comm::LocalWorld world(testing::world_options(plan));
    try {
      comm::run_ranks_or_throw(world, [&](Communicator& c) {
        ContextParallel(mask, plan, c, {1, 1, 1, 8, DType::f32}, {}, routes);
      });
      FAIL() << word;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  refused(ContextParallelRoutes(other_mask, plan), "routes: they are of another mask");
  refused(ContextParallelRoutes(mask, other_plan), "routes: they are of another plan");
  refused(ContextParallelRoutes(mask, plan, direct), "another options.prune, routing or landing");
  refused(ContextParallelRoutes(mask, plan, unpruned), "another options.prune, routing or landing");
  EXPECT_THROW(ContextParallelRoutes(causal_documents({31}, 31), plan), Error);
}

}  // namespace
}  // namespace flashmask
