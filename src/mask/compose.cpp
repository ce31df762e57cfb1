// Masks made of masks: heads beside heads, batch rows under batch rows.
#include "core/check.hpp"
#include "flashmask/builders.hpp"

namespace flashmask::masks {
namespace {

void check_same(std::string_view what, std::size_t part, std::string_view extent, std::int64_t value,
                std::int64_t expected) {
  core::check(value == expected, "{}: part {} has {} = {}: expected {}, as in part 0", what, part, extent, value,
              expected);
}

/// The planes of all parts one after another along `grown`, an extent of the shape; `kept` must agree.
ColumnMask concatenate(std::string_view what, std::span<const ColumnMask> parts, std::int64_t MaskShape::*grown,
                       std::int64_t MaskShape::*kept, std::string_view kept_name) {
  core::check(!parts.empty(), "{}: no parts: expected at least one mask", what);
  MaskShape shape = parts[0].shape();
  shape.*grown = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const MaskShape& s = parts[p].shape();
    check_same(what, p, kept_name, s.*kept, shape.*kept);
    check_same(what, p, "rows", s.rows, shape.rows);
    check_same(what, p, "columns", s.columns, shape.columns);
    shape.*grown += s.*grown;
  }
  ColumnMask result(shape);
  MaskShape offset{0, 0, 0, 0};
  for (const ColumnMask& part : parts) {
    for (std::int64_t b = 0; b < part.shape().batch; ++b) {
      for (std::int64_t h = 0; h < part.shape().heads; ++h) {
        for (std::int64_t j = 0; j < shape.columns; ++j) {
          result.set(offset.batch + b, offset.heads + h, j,
                     canonical(part.at(b, h, j), static_cast<std::int32_t>(shape.rows)));
        }
      }
    }
    offset.*grown += part.shape().*grown;
  }
  return result;
}

}  // namespace

ColumnMask per_head(std::span<const ColumnMask> parts) {
  return concatenate("per_head", parts, &MaskShape::heads, &MaskShape::batch, "batch");
}

ColumnMask stack_batch(std::span<const ColumnMask> parts) {
  return concatenate("stack_batch", parts, &MaskShape::batch, &MaskShape::heads, "heads");
}

}  // namespace flashmask::masks
