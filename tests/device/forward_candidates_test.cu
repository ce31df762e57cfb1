// The instances that are compared with the default one (src/sm90/forward/candidates), each against the float64 oracle:
// what is right and what is fast then come from one machine in one go.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "device/forward_harness.cuh"
#include "sm90/forward/candidates/candidates.hpp"
#include "support/mask_families.hpp"

namespace flashmask::device {
namespace {

using flashmask::testing::MaskKind;
using flashmask::testing::pick;
using flashmask::testing::Random;
using flashmask::testing::random_family_mask;
using flashmask::testing::random_length;
using flashmask::testing::RawMask;
using sm90::forward_pass::Candidate;
using Bf16 = __nv_bfloat16;

const int draws = std::min(300, count_from_environment("FLASHMASK_DEVICE_DRAWS", 300));
const int repeats = std::min(100, count_from_environment("FLASHMASK_DEVICE_REPEATS", 100));

class ForwardCandidate : public ::testing::TestWithParam<Candidate> {
 protected:
  static sm90::DeviceTileMap map_of(const MaskShape& shape, bool bitmaps) {
    const Candidate& c = GetParam();
    sm90::DeviceTileMap::Options options;
    options.form = c.form();
    options.capacity = sm90::default_capacity(shape, c.config.tile(), sm90::default_bitmap_bytes, options.form);
    if (!bitmaps) options.capacity->bitmaps = 0;
    return {shape, c.config.tile(), options};
  }
  /// Refills the map and runs the candidate over poisoned outputs.
  void run(ForwardCase<Bf16>& c, sm90::DeviceTileMap& map) {
    c.poison();
    const MaskView v = c.vectors.view();
    map.refill({v.lts, v.lte, v.uts, v.ute}, nullptr);
    sm90::ForwardArguments a = c.arguments(workspace);
    a.map = &map.view();
    sm90::forward_pass::forward(GetParam(), a);
    workspace.check();
  }
  bool check(const AttentionShape& s, const RawMask& mask, std::uint64_t seed, bool bitmaps,
             const ForwardSetup& setup = {}) {
    ForwardCase<Bf16> c(s, mask.view(), seed, setup);
    sm90::DeviceTileMap map = map_of(mask.shape, bitmaps);
    run(c, map);
    return c.expect_right(errors, "rows " + std::to_string(s.rows) + " columns " + std::to_string(s.columns) +
                                      " heads " + std::to_string(s.query_heads) + ":" + std::to_string(s.kv_heads) +
                                      " mask heads " + std::to_string(mask.shape.heads) + " seed " +
                                      std::to_string(seed) + (bitmaps ? "" : " without bitmaps"));
  }
  /// Heads of a KV head that the candidate can pack.
  static std::int64_t group() { return GetParam().config.packed_heads; }

  ForwardWorkspace workspace;
  WorstErrors errors;
};

TEST_P(ForwardCandidate, agrees_with_float64_on_every_mask_kind_with_and_without_bitmaps) {
  for (int kind = 0; kind < static_cast<int>(MaskKind::count); ++kind) {
    const std::uint64_t seed = 300 + static_cast<std::uint64_t>(kind);
    for (const bool bitmaps : {true, false}) {
      for (const std::int64_t mask_heads : {1, 2}) {
        Random random(seed);
        const AttentionShape s{2, 301, 450, 2 * group(), 2, 128};
        const RawMask mask =
            random_family_mask(random, {s.batch, mask_heads, s.rows, s.columns}, static_cast<MaskKind>(kind));
        ASSERT_TRUE(check(s, mask, seed, bitmaps)) << "mask kind " << kind;
      }
    }
  }
}

TEST_P(ForwardCandidate, agrees_with_float64_on_random_masks_and_shapes) {
  for (int n = 0; n < draws; ++n) {
    Random random(900000 + n);
    AttentionShape s{random.integer(1, 2), random_length(random, 300),      random_length(random, 400), 0,
                     random.integer(1, 2), pick(random, {72, 96, 128, 128})};
    s.query_heads = s.kv_heads * group() * pick(random, {1, 1, 2, 3});
    if (s.query_heads > 128) s.query_heads = s.kv_heads * group();
    const MaskShape shape{pick(random, {std::int64_t{1}, s.batch}), pick(random, {std::int64_t{1}, s.kv_heads}), s.rows,
                          s.columns};
    const RawMask mask = random_family_mask(random, shape);
    ForwardSetup setup;
    setup.layout = pick(random, {Layout::bshd, Layout::bhsd, Layout::padded});
    setup.grid = n % 3 == 0 ? 2 : 0;
    ASSERT_TRUE(check(s, mask, n, n % 2 == 0, setup)) << "draw " << n;
  }
}

/// Q = 0 gives LSE = ln(visible columns): a single wrong cell shows.
TEST_P(ForwardCandidate, counts_every_visible_cell_of_the_twelve_masks) {
  for (const masks::BuilderName& b : masks::builder_names().subspan(0, 12)) {
    const ColumnMask mask = named(std::string(b.name), 700);
    ForwardSetup setup;
    setup.spread = 0;
    ForwardCase<Bf16> c({1, 700, 700, group(), 1, 128}, mask.view(), 1, setup);
    sm90::DeviceTileMap map = map_of(mask.shape(), true);
    run(c, map);
    ASSERT_TRUE(c.expect_right(errors, std::string(b.name)));
  }
}

TEST_P(ForwardCandidate, stays_bitwise_equal_when_repeated_on_one_workspace) {
  Random random(41);
  const AttentionShape s{2, 1500, 1300, 2 * group(), 2, 128};
  const RawMask mask = random_family_mask(random, {1, 1, s.rows, s.columns}, MaskKind::causal_documents);
  ForwardCase<Bf16> c(s, mask.view(), 5);
  sm90::DeviceTileMap map = map_of(mask.shape, true);
  run(c, map);
  const std::vector<double> out = c.out.download(), lse = c.lse_values();
  for (int n = 0; n < repeats; ++n) {
    run(c, map);
    ASSERT_EQ(c.out.download(), out) << "repetition " << n;
    ASSERT_EQ(c.lse_values(), lse) << "repetition " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, ForwardCandidate, ::testing::ValuesIn(sm90::forward_pass::candidates()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace flashmask::device
