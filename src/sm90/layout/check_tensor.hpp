// Which tensors the kernels take: what TMA can copy (tensor_map.hpp), and outputs that nothing else shares.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "flashmask/tensor.hpp"

namespace flashmask::sm90::layout {

/// Of one tensor: batch, positions, heads, head_dim; none is 0.
using Extents = std::array<std::int64_t, 4>;

/// Throws invalid_argument, naming the tensor, unless its data are aligned to 16 bytes, it has the call's dtype, the
/// stride of head_dim is 1 and the others are positive multiples of 8 elements below 2^39 (2^40 bytes, TMA's bound)
/// that stay inside the address space. The stride of an axis of extent 1 is never followed and may be anything.
void check_tensor(const char* name, const TensorView& tensor, DType dtype, const Extents& extents);
/// The same for a tensor that is written: no two elements may share an address.
void check_output(const char* name, const TensorView& tensor, DType dtype, const Extents& extents);

/// Throws unless `data`, of which `what` is said, is aligned to `bytes`.
void check_alignment(const char* what, const void* data, std::size_t bytes);

struct NamedMemory {
  const char* name;
  const void* data;
};
/// Throws if an output begins where another output or an input begins.
void check_apart(std::span<const NamedMemory> outputs, std::span<const NamedMemory> inputs);

}  // namespace flashmask::sm90::layout
