// For compute-sanitizer --tool racecheck: kernels of this test alone, in which every lane arrives for itself. The
// product lets one lane arrive for its converged warp, an order that racecheck does not see; here a report is a
// finding.
#include <gtest/gtest.h>

#include <string>

#include "device/forward_harness.cuh"
#include "sm90/forward/launch.cuh"
#include "support/mask_families.hpp"

namespace flashmask::device {
namespace {

using flashmask::testing::MaskKind;
using flashmask::testing::Random;
using flashmask::testing::random_family_mask;
using flashmask::testing::RawMask;
using sm90::forward_pass::Element;
using sm90::forward_pass::ForwardConfig;
using sm90::forward_pass::ForwardParameters;

constexpr ForwardConfig every_lane_arrives(TileShape tile) {
  ForwardConfig config = sm90::forward_pass::config_of(tile, 128, Element::bf16, false);
  config.every_lane_arrives = true;
  return config;
}

struct EveryLane {
  static constexpr ForwardConfig config = every_lane_arrives({192, 80});
};
struct EveryLanePacked {
  static constexpr ForwardConfig config = every_lane_arrives({sm90::forward_pass::packed_rows, 80});
};

/// Launches `Instance` on what it takes of every kind of mask, with and without bitmaps, against float64.
template <class Instance>
void check_every_kind(const AttentionShape& s, TileShape tile) {
  const ForwardWorkspace workspace;
  WorstErrors errors;
  for (int kind = 0; kind < static_cast<int>(MaskKind::count); ++kind) {
    for (const bool bitmaps : {true, false}) {
      const auto seed = static_cast<std::uint64_t>(300 + kind);
      Random random(seed);
      const RawMask mask =
          random_family_mask(random, {s.batch, s.kv_heads, s.rows, s.columns}, static_cast<MaskKind>(kind));
      ForwardCase<__nv_bfloat16> c(s, mask.view(), seed, {.grid = 5, .tile = tile, .bitmaps = bitmaps});
      c.poison();
      c.mask.refill(c.vectors.view(), nullptr);
      const sm90::ForwardArguments arguments = c.arguments(workspace);
      sm90::validate(arguments);
      sm90::forward_pass::launch(arguments, Instance::config, sm90::forward_pass::launch_instance<Instance>);
      workspace.check();
      ASSERT_TRUE(c.expect_right(errors, "mask kind " + std::to_string(kind) + (bitmaps ? "" : " without bitmaps")));
    }
  }
}

TEST(ForwardRacecheck, every_lane_arrives_on_every_mask_kind) {
  check_every_kind<EveryLane>({2, 301, 450, 2, 2, 128}, {192, 80});
}
TEST(ForwardRacecheck, every_lane_arrives_with_packed_heads) {
  check_every_kind<EveryLanePacked>({1, 150, 300, 16, 2, 128}, packed_tile(128));
}

}  // namespace
}  // namespace flashmask::device
