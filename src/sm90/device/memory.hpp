// Device memory, streams and events that free themselves, for programs around the kernels: the kernels' own calls take
// pointers and a stream and allocate nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "sm90/cuda_check.hpp"

namespace flashmask::sm90 {

/// A stream of its own, not ordered with the default stream.
class Stream {
 public:
  Stream() {
    cudaStream_t made = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    stream_.reset(made);
  }
  [[nodiscard]] cudaStream_t get() const { return stream_.get(); }
  void synchronise() const { check_cuda(cudaStreamSynchronize(get()), "cudaStreamSynchronize"); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  std::unique_ptr<CUstream_st, Destroy> stream_;
};

/// A point in a stream's time.
class Event {
 public:
  Event() {
    cudaEvent_t made = nullptr;
    check_cuda(cudaEventCreate(&made), "cudaEventCreate");
    event_.reset(made);
  }
  void record(const Stream& stream) const {
    check_cuda(cudaEventRecord(event_.get(), stream.get()), "cudaEventRecord");
  }
  /// Milliseconds from `start` to this; both must have passed.
  [[nodiscard]] double since(const Event& start) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start.event_.get(), event_.get()), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds);
  }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

/// Bytes of device memory, aligned to 256; none for size 0.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    void* made = nullptr;
    if (bytes > 0) check_cuda(cudaMalloc(&made, bytes), "cudaMalloc");
    memory_.reset(made);
  }
  [[nodiscard]] void* data() const { return memory_.get(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  /// Queues a copy of bytes() from host memory.
  void upload(const void* from, const Stream& stream) const {
    if (bytes_ == 0) return;
    check_cuda(cudaMemcpyAsync(data(), from, bytes_, cudaMemcpyHostToDevice, stream.get()), "upload to the GPU");
  }
  /// Queues a copy of bytes() to host memory.
  void download(void* to, const Stream& stream) const {
    if (bytes_ == 0) return;
    check_cuda(cudaMemcpyAsync(to, data(), bytes_, cudaMemcpyDeviceToHost, stream.get()), "download from the GPU");
  }
  /// Queues the filling of every byte with 0xff, a NaN in every dtype.
  void poison(const Stream& stream) const {
    if (bytes_ > 0) check_cuda(cudaMemsetAsync(data(), 0xff, bytes_, stream.get()), "cudaMemsetAsync");
  }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace flashmask::sm90
