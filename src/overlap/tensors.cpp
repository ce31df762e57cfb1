#include "overlap/tensors.hpp"

#include <cstring>

#include "core/dtype.hpp"

namespace flashmask::overlap {
namespace {

std::int64_t offset(const std::array<std::int64_t, 4>& strides, std::int64_t b, std::int64_t row, std::int64_t h) {
  return b * strides[0] + row * strides[1] + h * strides[2];
}

void pack_one(TensorView view, std::int64_t from, std::int64_t dims, std::byte* to) {
  const std::size_t size = size_of(view.dtype);
  const auto* base = static_cast<const std::byte*>(view.data) + from * static_cast<std::int64_t>(size);
  if (view.strides[3] == 1) {
    std::memcpy(to, base, static_cast<std::size_t>(dims) * size);
    return;
  }
  for (std::int64_t d = 0; d < dims; ++d) {
    std::memcpy(to + d * static_cast<std::int64_t>(size), base + d * view.strides[3] * static_cast<std::int64_t>(size),
                size);
  }
}

void store(MutableTensorView view, std::int64_t at, float x) {
  switch (view.dtype) {
    case DType::f32:
      static_cast<float*>(view.data)[at] = x;
      break;
    case DType::f16:
      static_cast<std::uint16_t*>(view.data)[at] = core::float_to_f16(x);
      break;
    case DType::bf16:
      static_cast<std::uint16_t*>(view.data)[at] = core::float_to_bf16(x);
      break;
  }
}

}  // namespace

std::array<std::int64_t, 4> slot_strides(const TokenShape& token, std::int64_t columns) {
  return {columns * token.elements(), token.elements(), token.head_dim, 1};
}

void pack(const TokenShape& token, TensorView k, TensorView v, std::int64_t batch, std::int64_t row, std::int64_t count,
          std::byte* slot) {
  const auto bytes = token.head_dim * static_cast<std::int64_t>(size_of(k.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    for (const TensorView& view : {k, v}) {
      for (std::int64_t h = 0; h < token.kv_heads; ++h) {
        pack_one(view, offset(view.strides, batch, row + i, h), token.head_dim, slot);
        slot += bytes;
      }
    }
  }
}

void unpack(const TokenShape& token, const float* slot, MutableTensorView dk, MutableTensorView dv, std::int64_t batch,
            std::int64_t row, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (const MutableTensorView& view : {dk, dv}) {
      for (std::int64_t h = 0; h < token.kv_heads; ++h) {
        const std::int64_t base = offset(view.strides, batch, row + i, h);
        for (std::int64_t d = 0; d < token.head_dim; ++d) {
          store(view, base + d * view.strides[3], slot == nullptr ? 0.0F : *slot++);
        }
      }
    }
  }
}

}  // namespace flashmask::overlap
