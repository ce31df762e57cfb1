// The outer form of FlashMask users: startend_row_indices with a causal flag (docs/mask.md has the table).
#include <algorithm>

#include "core/check.hpp"
#include "flashmask/builders.hpp"

namespace flashmask::masks {

ColumnMask from_startend_row_indices(const MaskShape& shape, bool causal, std::int64_t vectors,
                                     std::span<const std::int32_t> values) {
  const bool known = causal ? vectors == 1 || vectors == 2 : vectors == 2 || vectors == 4;
  core::check(
      known,
      "startend_row_indices: causal = {} with {} vectors: accepted are causal with 1 (LTS) or 2 (LTS, LTE), not "
      "causal with 2 (LTS, UTE) or 4 (LTS, LTE, UTS, UTE)",
      causal, vectors);
  ColumnMask result(shape);
  core::check(std::ssize(values) == shape.vector_size() * vectors,
              "startend_row_indices: {} values: expected batch x heads x columns x vectors = {} x {} x {} x {} = {}",
              values.size(), shape.batch, shape.heads, shape.columns, vectors, shape.vector_size() * vectors);
  const auto rows = static_cast<std::int32_t>(shape.rows);
  const std::int64_t shift = shape.columns - shape.rows;
  const std::int32_t* v = values.data();
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      for (std::int64_t j = 0; j < shape.columns; ++j, v += vectors) {
        HiddenRows raw{v[0], rows, 0, 0};
        if (causal) {
          raw.ute = static_cast<std::int32_t>(std::clamp<std::int64_t>(j - shift, 0, rows));
          if (vectors == 2) raw.lte = v[1];
        } else if (vectors == 2) {
          raw.ute = v[1];  // the second vector of a mask that is not causal ends the upper run, not the lower one
        } else {
          raw = {v[0], v[1], v[2], v[3]};
        }
        result.set(b, h, j, canonical(raw, rows));
      }
    }
  }
  return result;
}

}  // namespace flashmask::masks
