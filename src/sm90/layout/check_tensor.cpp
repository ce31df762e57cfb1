#include "sm90/layout/check_tensor.hpp"

#include <limits>

#include "core/check.hpp"
#include "core/strides.hpp"

namespace flashmask::sm90::layout {
namespace {

/// Byte strides of a tensor map stay below 2^40; elements have two bytes.
constexpr std::int64_t largest_stride = (std::int64_t{1} << 39) - 8;
/// Of all elements of a tensor, so that byte offsets stay an int64.
constexpr std::int64_t largest_reach = std::numeric_limits<std::int64_t>::max() / 4;

void check_stride(const char* name, std::int64_t stride, std::size_t axis) {
  constexpr const char* axes[] = {"batch", "position", "head"};
  core::check(stride > 0,
              "{}: stride {} of axis {} ({}) must be positive: sm90 takes neither broadcast (0) nor reversed tensors; "
              "copy the tensor",
              name, stride, axis, axes[axis]);
  core::check(stride % 8 == 0,
              "{}: stride {} of axis {} ({}) must be a multiple of 8 elements (16 bytes); copy the tensor or pad "
              "head_dim to a multiple of 8",
              name, stride, axis, axes[axis]);
  core::check(stride <= largest_stride,
              "{}: stride {} of axis {} ({}) must be below 2^39 elements (2^40 bytes, what tile copies take); copy the "
              "tensor",
              name, stride, axis, axes[axis]);
}

}  // namespace

void check_tensor(const char* name, const TensorView& tensor, DType dtype, const Extents& extents) {
  core::check(tensor.data != nullptr, "{} is null; pass device memory", name);
  core::check(tensor.dtype == dtype, "{} has another dtype than q, {} and {}; all tensors of a call share one", name,
              to_string(tensor.dtype), to_string(dtype));
  core::check(tensor.strides[3] == 1,
              "{}: the stride of head_dim must be 1, got {}; make the last dimension contiguous", name,
              tensor.strides[3]);
  check_alignment(name, tensor.data, 16);
  std::int64_t reach = extents[3];
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (extents[axis] <= 1) continue;  // never followed
    check_stride(name, tensor.strides[axis], axis);
    std::int64_t span = 0;
    const bool overflow = __builtin_mul_overflow(tensor.strides[axis], extents[axis] - 1, &span) ||
                          __builtin_add_overflow(reach, span, &reach) || reach > largest_reach;
    core::check(!overflow, "{}: stride {} of axis {} times its extent {} leaves the address space", name,
                tensor.strides[axis], axis, extents[axis]);
  }
}

void check_output(const char* name, const TensorView& tensor, DType dtype, const Extents& extents) {
  check_tensor(name, tensor, dtype, extents);
  core::check(
      core::strides_keep_apart(tensor.strides, extents),
      "{}: strides {}, {}, {}, {} (batch, position, head, dim) for extents {}, {}, {}, {} let elements overlap, "
      "and it is written; pass strides such as bshd_strides()",
      name, tensor.strides[0], tensor.strides[1], tensor.strides[2], tensor.strides[3], extents[0], extents[1],
      extents[2], extents[3]);
}

void check_alignment(const char* what, const void* data, std::size_t bytes) {
  core::check(reinterpret_cast<std::uintptr_t>(data) % bytes == 0,
              "{}: the data pointer must be aligned to {} bytes, got {}; pass memory as cudaMalloc gives it", what,
              bytes, data);
}

void check_apart(std::span<const NamedMemory> outputs, std::span<const NamedMemory> inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto differs = [&](const NamedMemory& other) {
      core::check(outputs[i].data != other.data,
                  "{} and {} are the same memory, {}, and {} is written; give it its own", outputs[i].name, other.name,
                  other.data, outputs[i].name);
    };
    for (const NamedMemory& other : outputs.subspan(i + 1)) differs(other);
    for (const NamedMemory& other : inputs) differs(other);
  }
}

}  // namespace flashmask::sm90::layout
