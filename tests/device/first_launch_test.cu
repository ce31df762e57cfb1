// Calls whose kernels were never launched before do not wait for a kernel that polls on another stream. A program of
// its own: in another one, earlier tests would have launched the kernels. Every kernel of the library is launched here.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "device/backward_harness.cuh"
#include "device/numbered_cases.hpp"
#include "sm90/ptx/warp.cuh"

namespace flashmask::device {
namespace {

/// Set before the runtime reads it: loaded eagerly, no kernel would ever be missing.
const bool loads_lazily = setenv("CUDA_MODULE_LOADING", "LAZY", 1) == 0;

constexpr std::uint64_t deadline_ns = 5'000'000'000;

/// Spins until `word` is set or the deadline has passed.
__global__ void poll(const volatile std::uint32_t* word) {
  const std::uint64_t begin = sm90::ptx::global_timer();
  while (*word == 0 && sm90::ptx::global_timer() - begin < deadline_ns) {
  }
}

/// A kernel that polls from now on, and what was queued beside it.
class Beside {
 public:
  Beside() {
    require(cudaHostAlloc(&word_, sizeof(*word_), cudaHostAllocMapped), "cudaHostAlloc");
    *word_ = 0;
    for (cudaStream_t* s : {&polling_, &calls_})
      require(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), "cudaStreamCreate");
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    begin_ = std::chrono::steady_clock::now();
    poll<<<1, 1, 0, polling_>>>(word_);
  }
  ~Beside() {
    *const_cast<volatile std::uint32_t*>(word_) = 1;
    cudaDeviceSynchronize();
    cudaStreamDestroy(polling_), cudaStreamDestroy(calls_), cudaFreeHost(word_);
  }
  [[nodiscard]] cudaStream_t stream() const { return calls_; }
  /// Fails if the polling has ended: what was called last, `what`, waited for it.
  void expect_polling(const std::string& what) {
    if (waited_) return;  // the first to wait is the one to blame
    waited_ = cudaStreamQuery(polling_) != cudaErrorNotReady;
    cudaGetLastError();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    EXPECT_FALSE(waited_) << what << " waited, " << seconds.count() << " s, until the other kernel gave up";
  }

 private:
  std::uint32_t* word_ = nullptr;
  cudaStream_t polling_ = nullptr, calls_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
  bool waited_ = false;
};

/// Calls of both passes in every form of head_dim, tile, mode and chunks; no map is filled yet.
template <typename T>
class EveryForm {
 public:
  EveryForm() : epochs_(3) {
    epochs_.upload({1, 1, 1});
    const ColumnMask mask = causal_with(300, [](std::int32_t j) { return j < 100 ? 100 : 300; });
    for (const std::int64_t d : {64, 128}) {
      const AttentionShape shape{1, 300, 300, 8, 1, d};  // groups that can be packed, and are split
      for (const TileShape tile : sm90::forward_tiles(shape, 1)) {
        for (int chunks = 0; chunks < 2; ++chunks) {  // whether the call waits for them
          forward_.push_back(std::make_unique<ForwardCase<T>>(shape, mask.view(), 2, ForwardSetup{.tile = tile}));
          forward_.back()->poison();
        }
      }
      for (const auto& [deterministic, columns] : {std::pair{false, 128}, {false, 256}, {true, 128}}) {
        const TileShape tile{64, columns};
        backward_.push_back(std::make_unique<BackwardCase<T>>(shape, mask.view(), 3, deterministic, Layout::bshd, 1,
                                                              tile, /*refilled=*/false));
        backward_.back()->poison();
      }
    }
  }

  void queue(const ForwardWorkspace& workspace, Beside& beside) {
    for (std::size_t n = 0; n < forward_.size(); ++n) {
      ForwardCase<T>& c = *forward_[n];
      c.mask.refill(c.vectors.view(), beside.stream());
      beside.expect_polling("the refill of " + name_of(c));
      sm90::ForwardArguments arguments = c.arguments(workspace, beside.stream());
      if (n % 2 == 1) arguments.arrival = sm90::ChunkArrival{.words = epochs_.data(), .epoch = 1, .chunk_columns = 100};
      sm90::forward(arguments);
      beside.expect_polling("forward of " + name_of(c) + (n % 2 == 1 ? " waiting for chunks" : ""));
    }
    for (const auto& c : backward_) {
      c->mask.refill(c->forward.vectors.view(), beside.stream());
      c->forward.run(workspace, beside.stream());
      beside.expect_polling("the refill for the backward");
      c->run_backward(beside.stream());
      beside.expect_polling("backward of " + name_of(c->forward) + ", " + std::to_string(c->mask.view().block_n) +
                            " columns" + (c->deterministic ? ", deterministic" : ""));
    }
  }
  void expect_right() const {
    WorstErrors errors;
    for (const auto& c : forward_) EXPECT_TRUE(c->expect_right(errors, name_of(*c)));
    for (const auto& c : backward_) {
      sm90::check_backward_workspace(c->workspace.data(), nullptr);
      EXPECT_TRUE(c->forward.expect_right(errors, "first launch") && c->expect_right(errors, "first launch"));
    }
  }

 private:
  static std::string name_of(const ForwardCase<T>& c) {
    const sm90::TileMapView& map = c.mask.view();
    return std::string(to_string(dtype_of<T>)) + ", head_dim " + std::to_string(c.shape.head_dim) + ", " +
           std::to_string(map.block_m) + " x " + std::to_string(map.block_n) + " tiles";
  }

  DeviceBuffer<std::uint64_t> epochs_;
  std::vector<std::unique_ptr<ForwardCase<T>>> forward_;
  std::vector<std::unique_ptr<BackwardCase<T>>> backward_;
};

/// Maps whose lists are sorted: 4160 lists take another kernel of CUB's than 8000.
class SortedMaps {
 public:
  SortedMaps() {
    const ColumnMask one = causal_with(300, [](std::int32_t j) { return j < 100 ? 100 : 300; });
    for (const std::int64_t batch : {520, 1000}) {  // 5 row tiles and 3 column blocks each
      vectors_.push_back(repeated(one.view(), batch));
      masks_.emplace_back(MaskShape{batch, 1, 300, 300}, sm90::backward_tile());
    }
  }
  void queue(Beside& beside) {
    for (std::size_t n = 0; n < masks_.size(); ++n) {
      masks_[n].refill(vectors_[n].view(), beside.stream());
      beside.expect_polling("the refill of " + std::to_string(masks_[n].view().batch) + " matrices");
    }
  }
  void expect_right() const {
    for (const sm90::DeviceMask& mask : masks_) {
      std::vector<std::int32_t> order(static_cast<std::size_t>(mask.view().batch) * mask.view().row_tiles);
      require(cudaMemcpy(order.data(), mask.view().row_order, order.size() * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
      std::vector<std::int32_t> every(order.size());
      std::iota(every.begin(), every.end(), 0);
      EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), every.begin()));
    }
  }

 private:
  std::vector<DeviceMaskVectors> vectors_;
  std::vector<sm90::DeviceMask> masks_;
};

TEST(FirstLaunch, does_not_wait_for_a_kernel_that_polls) {
  ASSERT_TRUE(loads_lazily);
  const ForwardWorkspace workspace;  // the context is there now
  const auto begin = std::chrono::steady_clock::now();
  { const sm90::DeviceMask first({1, 1, 300, 300}, sm90::backward_tile()); }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  RecordProperty("first_mask_seconds", std::to_string(seconds.count()));
  EveryForm<__nv_bfloat16> bf16;
  EveryForm<__half> f16;
  SortedMaps sorted;
  std::optional<sm90::DeviceMask> later;  // destroyed after the polling: that waits
  {
    Beside beside;
    later.emplace(MaskShape{1, 1, 300, 300}, sm90::backward_tile());
    beside.expect_polling("a later mask");
    bf16.queue(workspace, beside), f16.queue(workspace, beside), sorted.queue(beside);
    require(cudaStreamSynchronize(beside.stream()), "cudaStreamSynchronize");
    beside.expect_polling("one of the calls, on the device,");
  }
  workspace.check();
  bf16.expect_right(), f16.expect_right(), sorted.expect_right();
}

}  // namespace
}  // namespace flashmask::device
