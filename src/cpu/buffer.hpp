// Scratch floats on a cache-line boundary, so that no panel load crosses a line.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace flashmask::cpu {

class Buffer {
 public:
  explicit Buffer(std::int64_t count)
      : data_(static_cast<float*>(::operator new(static_cast<std::size_t>(count) * sizeof(float), kAlignment))) {
    for (std::int64_t i = 0; i < count; ++i) data_[static_cast<std::size_t>(i)] = 0;
  }
  [[nodiscard]] float* data() { return data_.get(); }
  [[nodiscard]] const float* data() const { return data_.get(); }
  float& operator[](std::int64_t i) { return data_[static_cast<std::size_t>(i)]; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<float[], Free> data_;
};

}  // namespace flashmask::cpu
