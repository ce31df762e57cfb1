// The backward dealt out otherwise than by default: groups in any number of parts, with and without a shared front, in
// sections, the light blocks last. Calls of the other tests are small, so that their groups are always split as far as
// they can be.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#include "device/backward_harness.cuh"
#include "sm90/backward/launch.hpp"
#include "sm90/tile_map/view.hpp"
#include "support/mask_families.hpp"

namespace flashmask::device {
namespace {

using flashmask::testing::AttentionExtents;
using flashmask::testing::MaskKind;
using flashmask::testing::pick;
using flashmask::testing::Random;
using flashmask::testing::random_attention_shape;
using flashmask::testing::random_family_mask;
using flashmask::testing::RawMask;
using sm90::backward_pass::BackwardCall;
using Bf16 = __nv_bfloat16;

const int draws = std::min(200, count_from_environment("FLASHMASK_DEVICE_DRAWS", 200));
const int repeats = std::min(100, count_from_environment("FLASHMASK_DEVICE_REPEATS", 100));

/// Tiles that a pair of CTAs works on.
constexpr TileShape pair_tile{64, 256};

/// A kernel of the library on at most two multiprocessors, so that even a small call has many blocks for each.
template <sm90::backward_pass::LaunchMain* Kernel>
cudaError_t on_two(const sm90::backward_pass::MainParameters& parameters, std::int32_t blocks, cudaStream_t stream) {
  return Kernel(parameters, std::min(blocks, 2), stream);
}

sm90::backward_pass::LaunchMain* two_multiprocessors(std::int64_t head_dim, bool deterministic, bool paired) {
  using namespace sm90::backward_pass;
  if (paired) return head_dim > 64 ? on_two<launch_d128_bf16_paired> : on_two<launch_d64_bf16_paired>;
  if (head_dim > 64) return deterministic ? on_two<launch_d128_bf16_deterministic> : on_two<launch_d128_bf16>;
  return deterministic ? on_two<launch_d64_bf16_deterministic> : on_two<launch_d64_bf16>;
}

/// How a call is dealt out; `divisor`: the group in its smallest, second smallest, ... number of parts.
struct Dealing {
  const char* name;
  std::int32_t divisor, shared_front, section_heads, light_percent;
  bool paired = false;
  /// Whether there is such a call.
  [[nodiscard]] bool has(bool deterministic) const { return !paired || !deterministic; }
};
void PrintTo(const Dealing& dealing, std::ostream* out) {
  *out << dealing.name;
}

class BackwardOrder : public ::testing::TestWithParam<Dealing> {
 protected:
  static TileShape tile() { return GetParam().paired ? pair_tile : sm90::backward_tile(); }
  template <typename T>
  static BackwardCall dealt(const BackwardCase<T>& c) {
    BackwardCall call = call_of(c);
    const Dealing& d = GetParam();
    call.shared_front = d.shared_front;
    call.section_heads = d.section_heads, call.light_percent = d.light_percent;
    const auto group = static_cast<std::int32_t>(call.shape.query_heads / call.shape.kv_heads);
    call.parts = 1;
    for (std::int32_t n = 0; n < d.divisor && call.parts < group; ++n) {
      do ++call.parts;
      while (group % call.parts != 0);
    }
    return call;
  }
  template <typename T = Bf16>
  bool check(const AttentionExtents& e, const RawMask& mask, std::uint64_t seed, Layout layout = Layout::bshd) {
    BackwardCase<T> c(shape_of(e), mask.view(), seed, false, layout, 1, tile());
    c.forward.run(forward_workspace);
    run_call(c, dealt(c));
    return c.expect_right(errors, describe(e) + " seed " + std::to_string(seed));
  }

  ForwardWorkspace forward_workspace;
  WorstErrors errors;
};

TEST_P(BackwardOrder, agrees_with_float64_on_every_mask_kind) {
  for (int kind = 0; kind < static_cast<int>(MaskKind::count); ++kind) {
    std::uint64_t seed = 300 + 10 * static_cast<std::uint64_t>(kind);
    for (const AttentionExtents& e : {AttentionExtents{2, 500, 450, 4, 2, 1, 128},
                                      {2, 500, 450, 4, 2, 4, 128},
                                      {1, 700, 900, 3, 3, 1, 128},
                                      {1, 301, 450, 6, 1, 1, 80},
                                      {2, 500, 450, 4, 2, 4, 64},
                                      {1, 301, 900, 3, 3, 1, 40}}) {
      Random random(++seed);
      const RawMask mask =
          random_family_mask(random, {e.batch, e.mask_heads, e.rows, e.columns}, static_cast<MaskKind>(kind));
      ASSERT_TRUE(check(e, mask, seed)) << "mask kind " << kind;
    }
    Random random(++seed);
    for (const std::int64_t head_dim : {64, 128}) {
      const AttentionExtents half{1, 300, 700, 2, 2, 1, head_dim};
      const RawMask mask =
          random_family_mask(random, {half.batch, 1, half.rows, half.columns}, static_cast<MaskKind>(kind));
      ASSERT_TRUE(check<__half>(half, mask, seed)) << "fp16, mask kind " << kind;
    }
  }
}

TEST_P(BackwardOrder, agrees_with_float64_on_random_masks_and_shapes) {
  for (int n = 0; n < draws; ++n) {
    Random random(800000 + n);
    const std::int64_t most = n % 20 == 0 ? 1200 : 300;
    AttentionExtents e = random_attention_shape(random, most, most);
    e.head_dim = pick(random, {32, 48, 64, 64, 72, 96, 128, 128});
    const RawMask mask = random_family_mask(random, {e.batch, e.mask_heads, e.rows, e.columns});
    ASSERT_TRUE(check(e, mask, n, pick(random, {Layout::bshd, Layout::bhsd, Layout::padded}))) << "draw " << n;
  }
}

/// Two blocks a multiprocessor, of few tiles each: the borders between blocks, in every phase of the barriers.
TEST_P(BackwardOrder, many_short_blocks_a_multiprocessor_follow_one_another) {
  for (const MaskKind kind : {MaskKind::full, MaskKind::any_values, MaskKind::sparse_blocks, MaskKind::dead_columns}) {
    for (const std::int64_t rows : {64, 192}) {
      for (const std::int64_t head_dim : {64, 128}) {
        const AttentionExtents e{2, rows, 2048, 8, 8, 1, head_dim};
        Random random(50 + static_cast<int>(kind));
        const RawMask mask = random_family_mask(random, {e.batch, e.mask_heads, e.rows, e.columns}, kind);
        ASSERT_TRUE(check(e, mask, 60 + rows)) << "mask kind " << static_cast<int>(kind);
      }
    }
  }
}

/// Blocks of one, two and more tiles in every succession: with single heads the last block of a causal mask has one.
TEST_P(BackwardOrder, two_multiprocessors_take_all_blocks_one_after_another) {
  for (int kind = 0; kind < static_cast<int>(MaskKind::count); ++kind) {
    for (const AttentionShape& shape : {AttentionShape{1, 190, 900, 2, 2, 64},
                                        {2, 190, 390, 4, 2, 64},
                                        {1, 190, 900, 2, 2, 128},
                                        {2, 190, 390, 4, 2, 128}}) {
      for (const bool deterministic : {false, true}) {
        if (!GetParam().has(deterministic)) continue;
        const auto seed = static_cast<std::uint64_t>(500 + kind);
        Random random(seed);
        const RawMask mask =
            random_family_mask(random, {shape.batch, 1, shape.rows, shape.columns}, static_cast<MaskKind>(kind));
        BackwardCase<Bf16> c(shape, mask.view(), seed, deterministic, Layout::bshd, 1, tile());
        c.forward.run(forward_workspace);
        BackwardCall call = dealt(c);
        call.main_kernel = two_multiprocessors(shape.head_dim, deterministic, GetParam().paired);
        run_call(c, call);
        ASSERT_TRUE(c.expect_right(errors, "mask kind " + std::to_string(kind) + ", head_dim " +
                                               std::to_string(shape.head_dim) +
                                               (deterministic ? ", deterministic" : "")));
      }
    }
  }
}

TEST_P(BackwardOrder, stays_right_when_repeated_on_one_workspace) {
  for (const MaskKind kind : {MaskKind::causal_documents, MaskKind::eviction}) {
    for (const std::int64_t head_dim : {64, 128}) {
      Random random(31 + static_cast<int>(kind));
      const AttentionShape shape{2, 2777, 1834, 8, 2, head_dim};
      const RawMask mask = random_family_mask(random, {2, 2, shape.rows, shape.columns}, kind);
      BackwardCase<Bf16> c(shape, mask.view(), 5, false, Layout::bshd, 1, tile());
      c.forward.run(forward_workspace);
      const BackwardCall call = dealt(c);
      run_call(c, call);
      for (int n = 0; n < repeats; ++n) {
        if (n % 10 == 0) c.dq.poison(), c.dk.poison(), c.dv.poison();
        sm90::backward_pass::queue_backward(call, c.workspace.data(), nullptr);
        if (n % 10 != 9) continue;
        sm90::check_backward_workspace(c.workspace.data(), nullptr);
        ASSERT_TRUE(c.expect_right(errors, "repetition " + std::to_string(n)));
      }
    }
  }
}

/// 880 columns leave the second CTA of the last pair none.
TEST_P(BackwardOrder, chunks_report_completion) {
  for (const std::int64_t head_dim : {64, 128}) {
    for (const std::int64_t columns : {1000, 880}) {
      const AttentionExtents e{2, 300, columns, 4, 2, 1, head_dim};
      Random random(3);
      const RawMask mask = random_family_mask(random, {e.batch, 1, e.rows, e.columns}, MaskKind::dead_columns);
      BackwardCase<Bf16> c(shape_of(e), mask.view(), 4, false, Layout::bshd, 1, tile());
      c.forward.run(forward_workspace);
      constexpr std::int32_t chunk = 200;  // borders inside blocks
      const DeviceBuffer<std::uint32_t> counts(std::vector<std::uint32_t>(5, 0));
      BackwardCall call = dealt(c);
      call.signal = {counts.data(), chunk};
      call.main_kernel = two_multiprocessors(head_dim, false, GetParam().paired);
      run_call(c, call);
      ASSERT_TRUE(c.expect_right(errors, "with completion counts"));
      const std::vector<std::uint32_t> got = counts.download();
      for (std::int64_t n = 0; n < 5; ++n) {
        EXPECT_EQ(got[n], sm90::backward_pass::complete_count(call.shape, chunk, n))
            << "chunk " << n << " of " << columns << " columns";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, BackwardOrder,
                         ::testing::Values(Dealing{"whole_groups", 0, -1, 2, 50},
                                           Dealing{"whole_groups_front", 0, 1, 0, -1},
                                           Dealing{"two_parts_front", 1, 1, 1, 25}, Dealing{"parts", 2, -1, 3, 0},
                                           Dealing{"pairs", 0, -1, 0, -1, true},
                                           Dealing{"pairs_parts_front", 2, 1, 1, 40, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace flashmask::device
