// Between the caller's strided tensors and the packed slots that move.
//
// A token of a key slot is its keys and then its values, [2][kv_heads][head_dim] in the tensors' dtype; a token of a
// gradient slot is dK and then dV, [2][kv_heads][head_dim] in float32. So a chunk is one contiguous piece.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flashmask/attention.hpp"

namespace flashmask::overlap {

struct TokenShape {
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 1;
  [[nodiscard]] std::int64_t elements() const { return 2 * kv_heads * head_dim; }
};

/// Strides of K (or, from kv_heads * head_dim elements on, V) in a buffer of tokens with `columns` per batch row.
std::array<std::int64_t, 4> slot_strides(const TokenShape& token, std::int64_t columns);

/// Copies tokens [row, row + count) of one batch row of k and v into `slot`.
void pack(const TokenShape& token, TensorView k, TensorView v, std::int64_t batch, std::int64_t row, std::int64_t count,
          std::byte* slot);
/// Writes `count` tokens of a gradient slot to dk and dv, rounded to their dtype; a null slot writes zeros.
void unpack(const TokenShape& token, const float* slot, MutableTensorView dk, MutableTensorView dv, std::int64_t batch,
            std::int64_t row, std::int64_t count);

}  // namespace flashmask::overlap
