// Device buffers of tests: owned, NaN-poisoned before every run, filled at random, copied back.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "flashmask/attention.hpp"
#include "flashmask/mask.hpp"

namespace flashmask::device {

inline void require(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

/// A count that a slow run (under a sanitizer, say) may lower.
inline int count_from_environment(const char* name, int usual) {
  const char* text = std::getenv(name);
  return text == nullptr ? usual : std::atoi(text);
}

/// `size` elements of device memory; every byte 0xff at first, which is NaN in bf16, fp16, float and double.
template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::int64_t size) : size_(size) {
    void* p = nullptr;
    if (size > 0) require(cudaMalloc(&p, static_cast<std::size_t>(size) * sizeof(T)), "cudaMalloc");
    data_.reset(static_cast<T*>(p));
    poison();
  }
  explicit DeviceBuffer(const std::vector<T>& from) : DeviceBuffer(static_cast<std::int64_t>(from.size())) {
    upload(from);
  }

  [[nodiscard]] T* data() const { return data_.get(); }
  [[nodiscard]] std::int64_t size() const { return size_; }

  void poison() {
    if (size_ > 0) require(cudaMemset(data(), 0xff, static_cast<std::size_t>(size_) * sizeof(T)), "cudaMemset");
  }
  void upload(const std::vector<T>& from) {
    if (from.empty()) return;
    require(cudaMemcpy(data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
            "cudaMemcpy to the device");
  }
  [[nodiscard]] std::vector<T> download() const {
    std::vector<T> to(static_cast<std::size_t>(size_));
    if (size_ > 0) require(cudaMemcpy(to.data(), data(), to.size() * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return to;
  }

 private:
  struct Free {
    void operator()(T* p) const { cudaFree(p); }
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t size_ = 0;
};

template <typename T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<__nv_bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<__half> = DType::f16;

/// Order of a tensor's axes in memory. `padded` is BSHD with 8 more elements a head and a gap after each position.
enum class Layout { bshd, bhsd, padded };

/// A [batch][positions][heads][dim] tensor on the device with its strides.
template <typename T>
class DeviceTensor {
 public:
  DeviceTensor() = default;
  DeviceTensor(std::int64_t batch, std::int64_t positions, std::int64_t heads, std::int64_t dim,
               Layout layout = Layout::bshd)
      : extents_{batch, positions, heads, dim} {
    const std::int64_t head = layout == Layout::padded ? dim + 8 : dim;
    if (layout == Layout::bhsd) {
      strides_ = {heads * positions * dim, dim, positions * dim, 1};
    } else {
      const std::int64_t position = heads * head + (layout == Layout::padded ? 16 : 0);
      strides_ = {positions * position, position, head, 1};
    }
    buffer_ = DeviceBuffer<T>(batch * strides_[0]);
  }

  [[nodiscard]] T* data() const { return buffer_.data(); }
  [[nodiscard]] const std::array<std::int64_t, 4>& strides() const { return strides_; }
  [[nodiscard]] const std::array<std::int64_t, 4>& extents() const { return extents_; }
  [[nodiscard]] DeviceBuffer<T>& buffer() { return buffer_; }
  [[nodiscard]] TensorView view() const { return {data(), dtype_of<T>, strides_}; }
  [[nodiscard]] MutableTensorView mutable_view() const { return {data(), dtype_of<T>, strides_}; }
  [[nodiscard]] std::int64_t size() const { return extents_[0] * extents_[1] * extents_[2] * extents_[3]; }

  void poison() { buffer_.poison(); }

  /// Every element as double, contiguous [batch][positions][heads][dim], whatever the layout in memory.
  [[nodiscard]] std::vector<double> download() const {
    const std::vector<T> raw = buffer_.download();
    std::vector<double> to;
    to.reserve(static_cast<std::size_t>(size()));
    for (std::int64_t b = 0; b < extents_[0]; ++b) {
      for (std::int64_t p = 0; p < extents_[1]; ++p) {
        for (std::int64_t h = 0; h < extents_[2]; ++h) {
          const std::int64_t at = b * strides_[0] + p * strides_[1] + h * strides_[2];
          for (std::int64_t d = 0; d < extents_[3]; ++d)
            to.push_back(static_cast<double>(static_cast<float>(raw[at + d])));
        }
      }
    }
    return to;
  }

 private:
  std::array<std::int64_t, 4> extents_{}, strides_{};
  DeviceBuffer<T> buffer_;
};

/// The four vectors of a host mask on the device.
struct DeviceMaskVectors {
  DeviceBuffer<std::int32_t> lts, lte, uts, ute;
  MaskShape shape;

  explicit DeviceMaskVectors(const MaskView& mask) : shape(mask.shape) {
    const auto copy = [&](const std::int32_t* from) {
      return DeviceBuffer<std::int32_t>(std::vector<std::int32_t>(from, from + mask.shape.vector_size()));
    };
    lts = copy(mask.lts), lte = copy(mask.lte), uts = copy(mask.uts), ute = copy(mask.ute);
  }
  [[nodiscard]] MaskView view() const { return {lts.data(), lte.data(), uts.data(), ute.data(), shape}; }
};

}  // namespace flashmask::device
