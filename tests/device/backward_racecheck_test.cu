// For compute-sanitizer --tool racecheck: kernels of this test alone, in which every lane arrives for itself. The
// product lets one lane arrive for its converged warp, an order that racecheck does not see; here a report is a
// finding.
#include <gtest/gtest.h>

#include <string>

#include "device/backward_harness.cuh"
#include "sm90/backward/kernel.cuh"
#include "sm90/backward/launch.hpp"
#include "sm90/backward/row_pass.cuh"
#include "support/mask_families.hpp"

namespace flashmask::device {
namespace {

using flashmask::testing::MaskKind;
using flashmask::testing::Random;
using flashmask::testing::random_family_mask;
using flashmask::testing::RawMask;
using sm90::backward_pass::BackwardCall;
using sm90::backward_pass::BackwardConfig;
using sm90::backward_pass::MainParameters;
using sm90::backward_pass::RowParameters;

constexpr BackwardConfig accumulating{.head_dim = 128, .bf16 = true, .accumulate_dq = true, .every_lane_arrives = true};
/// The columns' other form: products overlapped.
constexpr BackwardConfig overlapped{.head_dim = 64, .bf16 = true, .accumulate_dq = true, .every_lane_arrives = true};
constexpr BackwardConfig paired{
    .head_dim = 128, .bf16 = true, .accumulate_dq = true, .every_lane_arrives = true, .paired = true};
/// Pairs in that form, which compute dQ of whole tiles in turn.
constexpr BackwardConfig paired_overlapped{
    .head_dim = 64, .bf16 = true, .accumulate_dq = true, .every_lane_arrives = true, .paired = true};
static_assert(paired_overlapped.alternates() && !paired.alternates());
static_assert(overlapped.overlapped() && !accumulating.overlapped());
constexpr BackwardConfig deterministic{
    .head_dim = 128, .bf16 = true, .accumulate_dq = false, .every_lane_arrives = true};

cudaError_t launch_rows(const RowParameters& parameters, cudaStream_t stream) {
  return sm90::backward_pass::launch_rows<deterministic>(parameters, stream);
}

/// On one multiprocessor (of a pair: two), so that blocks follow one another.
template <BackwardConfig C>
cudaError_t launch_main(const MainParameters& parameters, std::int32_t, cudaStream_t stream) {
  return sm90::backward_pass::launch_main<C>(parameters, C.ctas(), stream);
}

/// On every kind of mask against float64, groups whole and split, with a shared front.
template <BackwardConfig C>
void check_every_kind() {
  const ForwardWorkspace workspace;
  WorstErrors errors;
  const AttentionShape s{1, 200, 300, 2, 1, C.head_dim};
  for (int kind = 0; kind < static_cast<int>(MaskKind::count); ++kind) {
    const auto seed = static_cast<std::uint64_t>(400 + kind);
    Random random(seed);
    const RawMask mask = random_family_mask(random, {s.batch, 1, s.rows, s.columns}, static_cast<MaskKind>(kind));
    BackwardCase<__nv_bfloat16> c(s, mask.view(), seed, !C.accumulate_dq, Layout::bshd, 1, {64, C.work_columns()});
    c.forward.run(workspace);
    BackwardCall call = call_of(c);
    call.parts = 1 + kind % 2;
    call.shared_front = 1;
    call.main_kernel = launch_main<C>;
    call.row_kernel = launch_rows;
    run_call(c, call);
    ASSERT_TRUE(c.expect_right(errors, "mask kind " + std::to_string(kind)));
  }
}

TEST(BackwardRacecheck, every_lane_arrives_on_every_mask_kind) {
  check_every_kind<accumulating>();
}
TEST(BackwardRacecheck, every_lane_arrives_with_overlapped_products) {
  check_every_kind<overlapped>();
}
TEST(BackwardRacecheck, every_lane_arrives_in_pairs) {
  check_every_kind<paired>();
}
TEST(BackwardRacecheck, every_lane_arrives_in_pairs_with_overlapped_products) {
  check_every_kind<paired_overlapped>();
}
TEST(BackwardRacecheck, every_lane_arrives_in_deterministic_mode) {
  check_every_kind<deterministic>();
}

}  // namespace
}  // namespace flashmask::device
