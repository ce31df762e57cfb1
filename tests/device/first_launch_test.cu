// Calls whose kernels were never launched before do not wait for a kernel that polls on another stream. A program of
// its own: in another one, earlier tests would have launched the kernels.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "device/backward_harness.cuh"
#include "device/numbered_cases.hpp"
#include "sm90/ptx/warp.cuh"

namespace flashmask::device {
namespace {

constexpr std::uint64_t deadline_ns = 5'000'000'000;

/// Spins until `word` is set or the deadline has passed.
__global__ void poll(const volatile std::uint32_t* word) {
  const std::uint64_t begin = sm90::ptx::global_timer();
  while (*word == 0 && sm90::ptx::global_timer() - begin < deadline_ns) {
  }
}

template <typename T>
using Cases = std::vector<std::unique_ptr<BackwardCase<T>>>;

/// Calls of both passes, in every form of the backward.
template <typename T>
Cases<T> every_form() {
  const ColumnMask mask = causal_with(300, [](std::int32_t j) { return j < 100 ? 100 : 300; });
  Cases<T> cases;
  for (const std::int64_t d : {64, 128}) {
    for (const auto& [deterministic, columns] : {std::pair{false, 128}, {false, 256}, {true, 128}}) {
      const AttentionShape shape{1, 300, 300, 8, 1, d};  // groups are split
      cases.push_back(std::make_unique<BackwardCase<T>>(shape, mask.view(), 3, deterministic, Layout::bshd, 1,
                                                        TileShape{64, columns}));
      cases.back()->poison();
    }
  }
  return cases;
}

template <typename T>
void queue(const Cases<T>& cases, const ForwardWorkspace& workspace, cudaStream_t stream) {
  for (const auto& c : cases) c->forward.run(workspace, stream), c->run_backward(stream);
}
template <typename T>
void expect_right(const Cases<T>& cases) {
  WorstErrors errors;
  for (const auto& c : cases) {
    sm90::check_backward_workspace(c->workspace.data(), nullptr);
    EXPECT_TRUE(c->forward.expect_right(errors, "first launch") && c->expect_right(errors, "first launch"));
  }
}

TEST(FirstLaunch, does_not_wait_for_a_kernel_that_polls) {
  const ForwardWorkspace workspace;  // the context is there now
  const auto seconds_since = [](std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  auto begin = std::chrono::steady_clock::now();
  { const sm90::DeviceMask first({1, 1, 300, 300}, sm90::backward_tile()); }
  RecordProperty("first_mask_seconds", std::to_string(seconds_since(begin)));
  const auto bf16 = every_form<__nv_bfloat16>();
  const auto f16 = every_form<__half>();
  std::uint32_t* word = nullptr;
  cudaStream_t polling, calls;
  require(cudaHostAlloc(&word, sizeof(*word), cudaHostAllocMapped), "cudaHostAlloc");
  *word = 0;
  for (cudaStream_t* s : {&polling, &calls})
    require(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), "cudaStreamCreate");
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  poll<<<1, 1, 0, polling>>>(word);
  begin = std::chrono::steady_clock::now();
  queue(bf16, workspace, calls), queue(f16, workspace, calls);
  require(cudaStreamSynchronize(calls), "cudaStreamSynchronize");
  const double seconds = seconds_since(begin);
  EXPECT_EQ(cudaStreamQuery(polling), cudaErrorNotReady) << "the calls took " << seconds << " s, until it gave up";
  cudaGetLastError();
  *reinterpret_cast<volatile std::uint32_t*>(word) = 1;
  require(cudaStreamSynchronize(polling), "cudaStreamSynchronize");
  workspace.check();
  expect_right(bf16), expect_right(f16);
  cudaStreamDestroy(polling), cudaStreamDestroy(calls), cudaFreeHost(word);
}

}  // namespace
}  // namespace flashmask::device
