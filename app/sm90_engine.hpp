// One attention problem on a Hopper GPU, as `run` and `bench` use it. The only place of the command that knows of
// device memory; implemented by sm90_engine.cpp, and by sm90_engine_absent.cpp in a build without CUDA.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "flashmask/attention.hpp"

namespace flashmask::app {

/// What a report says about the device and how the kernels took the mask.
struct Sm90Report {
  std::string device, driver;
  TileShape forward_tile{}, backward_tile{};
  double forward_map_ms = 0, backward_map_ms = 0;  ///< classifying the mask for each pass, on the device
};

/// Milliseconds of one pass on the device: of every launch after an idle time, and a launch in batches without idle.
struct Sm90Times {
  std::vector<double> burst, sustained;
};

struct Sm90Protocol {
  int warmups = 3;
  int repeats = 0;  ///< 0: 9, or 5 where a launch takes over 40 ms
};

/// Throws unsupported, saying what is missing and what to do, unless this build and this machine can run the kernels.
void require_sm90();

/// Owns device memory for all tensors of a shape, contiguous [batch][positions][heads][head_dim].
class Sm90Engine {
 public:
  /// Throws as require_sm90(), or out_of_memory.
  Sm90Engine(const AttentionShape& shape, DType dtype);
  ~Sm90Engine();
  Sm90Engine(Sm90Engine&&) noexcept;
  Sm90Engine& operator=(Sm90Engine&&) noexcept;

  /// Classifies the mask for both passes, for all calls that follow. Batch rows with equal masks share one.
  void set_mask(const ColumnMask& mask);

  /// A call whose tensors are in host memory: uploads the inputs, runs once to load the kernels and once timed over
  /// poisoned outputs, downloads. The mask of the arguments must be that of set_mask().
  void forward(const ForwardArguments& arguments);
  void backward(const BackwardArguments& arguments);
  /// Of the last call, by events on the device.
  [[nodiscard]] double milliseconds() const;

  /// Uploads q, k, v and dout; time_forward() and time_backward() then repeat calls on the device.
  void upload(TensorView q, TensorView k, TensorView v, TensorView dout);
  Sm90Times time_forward(const Sm90Protocol& protocol);
  /// After time_forward(): it reads its out and LSE.
  Sm90Times time_backward(const Sm90Protocol& protocol);

  [[nodiscard]] Sm90Report report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flashmask::app
