// The simulator's clock, by hand on two ranks, and what must hold on any problem.
#include "overlap/simulate.hpp"

#include <gtest/gtest.h>

#include "flashmask/error.hpp"
#include "overlap/plans.hpp"

namespace flashmask::overlap {
namespace {

using flashmask::testing::causal_documents;
using flashmask::testing::plan_of;

Cluster simple_cluster() {
  Cluster cluster;
  cluster.sms = 2;
  cluster.communication_sms = 1;
  cluster.forward = {2.0, 1.0};
  cluster.backward = {5.0, 2.5};
  cluster.bandwidth = {1000.0, 100.0};
  cluster.latency = {0.25, 0.5};
  cluster.sum_bandwidth = 4000.0;
  cluster.launch = 0.125;
  return cluster;
}

/// Two chunks of 128 rows, everything visible, one head of one dimension: a token's K and V are 4 bytes, its
/// gradients 8.
constexpr SimulatedShape kOneHead{1, 1, 1, 2, 4};

TEST(Simulate, two_ranks_overlapped_by_hand) {
  const auto mask = masks::full({1, 1, 256, 256});
  const Plan plan = plan_of(mask, 2, 1, 128, PlanKind::contiguous);
  const StepTimeline step = simulate(mask, plan, kOneHead, simple_cluster(), {});
  // 512 bytes at 1000 a second arrive 0.512 + 0.25 after the start at 0.125; the own tile ends at 1.125, later than
  // that.
  EXPECT_DOUBLE_EQ(step.forward.time, 0.125 + 1.0 + 1.0);
  EXPECT_DOUBLE_EQ(step.forward.exposed(), 0);
  EXPECT_DOUBLE_EQ(step.forward.communication, 0.512 + 0.25);
  EXPECT_DOUBLE_EQ(step.forward.efficiency(), 1);
  // Backward: own chunk to 2.625, the remote one to 5.125, its 1024 bytes arrive at 6.399 and are added in 0.256.
  EXPECT_NEAR(step.backward.time, 0.125 + 5.0 + 1.024 + 0.25 + 0.256, 1e-12);
  EXPECT_NEAR(step.backward.exposed(), 1.024 + 0.25 + 0.256, 1e-12);
  EXPECT_EQ(step.bytes[0], 2 * 2 * 512 + 2 * 1024);
  EXPECT_EQ(step.bytes[1], 0);
}

TEST(Simulate, without_overlap_phases_follow_one_another) {
  const auto mask = masks::full({1, 1, 256, 256});
  const Plan plan = plan_of(mask, 2, 2, 128, PlanKind::contiguous);  // between nodes: a tenth of the bandwidth
  SimulateOptions options;
  options.overlapping = Overlapping::off;
  const StepTimeline step = simulate(mask, plan, kOneHead, simple_cluster(), options);
  const double gathered = 0.125 + 5.12 + 0.5;
  EXPECT_NEAR(step.forward.time, gathered + 0.125 + 2.0, 1e-12);
  EXPECT_NEAR(step.backward.time, gathered + 0.125 + 2.5 + 0.125 + 10.24 + 0.5 + 0.256, 1e-12);
  EXPECT_GT(step.forward.exposed(), 5);
  EXPECT_LT(step.forward.efficiency(), 0.1);
}

TEST(Simulate, one_rank_communicates_nothing_and_uses_every_sm) {
  const auto mask = masks::full({1, 1, 256, 256});
  const Plan plan = plan_of(mask, 1, 1, 128, PlanKind::contiguous);
  const StepTimeline step = simulate(mask, plan, kOneHead, simple_cluster(), {});
  EXPECT_DOUBLE_EQ(step.forward.time, 0.125 + 2.0);  // two row blocks on two SMs
  EXPECT_DOUBLE_EQ(step.forward.communication, 0);
  EXPECT_DOUBLE_EQ(step.forward.efficiency(), 1);
}

TEST(Simulate, pruning_and_hierarchy_move_fewer_bytes_and_the_plan_says_how_many) {
  const auto mask = causal_documents({1500, 900, 1100, 596}, 4096);
  const Plan plan = plan_of(mask, 8, 2, 64, PlanKind::hcc_ipo);
  const SimulatedShape shape{8, 2, 64, 2, 4};
  SimulateOptions unpruned, direct;
  unpruned.pruning = Pruning::off;
  direct.schedule.routing = Routing::direct;
  const Cluster cluster = simple_cluster();
  const StepTimeline both = simulate(mask, plan, shape, cluster, {});
  const StepTimeline all = simulate(mask, plan, shape, cluster, unpruned);
  const StepTimeline each = simulate(mask, plan, shape, cluster, direct);
  EXPECT_LT(both.bytes[1], all.bytes[1]);
  EXPECT_LT(both.bytes[1], each.bytes[1]);
  EXPECT_EQ(both.bytes[0] + both.bytes[1], each.bytes[0] + each.bytes[1]) << "as many deliveries, over other links";
  const TrafficBytes keys = plan.bytes(2, 64, 2), gradients = plan.bytes(2, 64, 4);
  EXPECT_EQ(both.bytes[0], 2 * keys.intra + gradients.intra);
  EXPECT_EQ(both.bytes[1], 2 * keys.inter + gradients.inter);
  for (const StepTimeline* step : {&both, &all, &each}) {
    for (const PassTimeline* pass : {&step->forward, &step->backward}) {
      for (const RankTimeline& rank : pass->ranks) {
        EXPECT_GE(rank.attention_end, rank.compute);
        EXPECT_GE(rank.end, rank.attention_end);
      }
      EXPECT_LE(pass->efficiency(), 1);
    }
  }
  Cluster faster = cluster;
  for (double& b : faster.bandwidth) b *= 4;
  EXPECT_LE(simulate(mask, plan, shape, faster, {}).time(), both.time());
}

TEST(Simulate, impossible_clusters_and_plans_are_refused) {
  const auto mask = masks::full({1, 1, 256, 256});
  const Plan plan = plan_of(mask, 2, 1, 128, PlanKind::contiguous);
  Cluster cluster = simple_cluster();
  cluster.bandwidth[1] = 0;
  EXPECT_THROW((void)simulate(mask, plan, kOneHead, cluster, {}), Error);
  cluster = simple_cluster();
  cluster.communication_sms = 2;
  EXPECT_THROW((void)simulate(mask, plan, kOneHead, cluster, {}), Error);
  EXPECT_THROW((void)simulate(masks::full({1, 1, 128, 128}), plan, kOneHead, simple_cluster(), {}), Error);
}

}  // namespace
}  // namespace flashmask::overlap
