// From hidden intervals in token coordinates to the vectors of a mask: the one place where builders shift and clamp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/check.hpp"
#include "flashmask/mask.hpp"

namespace flashmask::mask {

/// Ends of the token axis: before every row and behind every row, whatever the shift.
inline constexpr std::int64_t first_token = -(std::int64_t{1} << 40);
inline constexpr std::int64_t end_token = std::int64_t{1} << 40;

/// Hidden rows of one column as token numbers; default: nothing hidden.
struct TokenColumn {
  std::int64_t lts = 0, lte = 0;
  std::int64_t uts = 0, ute = 0;
};

/// Hidden rows of a causal column: all tokens before it, and [lts, lte) of those behind.
inline TokenColumn causal_column(std::int64_t column, std::int64_t lts = 0, std::int64_t lte = 0) {
  return {lts, lte, first_token, column};
}

/// A column nobody sees.
inline TokenColumn dead_column() {
  return {0, 0, first_token, end_token};
}

/// Row i is token i + (columns - rows): shift, clamp, canonical form.
inline HiddenRows to_rows(const TokenColumn& c, const MaskShape& shape) {
  const std::int64_t shift = shape.columns - shape.rows;
  const auto row = [&](std::int64_t token) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(token - shift, 0, shape.rows));
  };
  return canonical({row(c.lts), row(c.lte), row(c.uts), row(c.ute)}, static_cast<std::int32_t>(shape.rows));
}

/// The mask whose column j of batch row b is column_of(b, j), the same for every mask head.
template <typename ColumnOf>
ColumnMask fill(const MaskShape& shape, ColumnOf&& column_of) {
  ColumnMask result(shape);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t j = 0; j < shape.columns; ++j) {
      const HiddenRows rows = to_rows(column_of(b, j), shape);
      for (std::int64_t h = 0; h < shape.heads; ++h) result.set(b, h, j, rows);
    }
  }
  return result;
}

/// For builders whose rows are tokens of the same sequence as the columns.
inline void check_rows_are_tokens(std::string_view builder, const MaskShape& shape) {
  core::check(shape.rows <= shape.columns,
              "{}: rows = {} with columns = {}: row i is token i + (columns - rows), so rows must not exceed columns",
              builder, shape.rows, shape.columns);
}

}  // namespace flashmask::mask
