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

void copy_plane(ColumnMask& to, std::int64_t to_batch, std::int64_t to_head, const ColumnMask& from,
                std::int64_t from_batch, std::int64_t from_head) {
  const auto rows = static_cast<std::int32_t>(to.shape().rows);
  for (std::int64_t j = 0; j < to.shape().columns; ++j) {
    to.set(to_batch, to_head, j, canonical(from.at(from_batch, from_head, j), rows));
  }
}

}  // namespace

ColumnMask per_head(std::span<const ColumnMask> parts) {
  core::check(!parts.empty(), "per_head: no parts: expected at least one mask");
  MaskShape shape = parts[0].shape();
  shape.heads = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const MaskShape& s = parts[p].shape();
    check_same("per_head", p, "batch", s.batch, shape.batch);
    check_same("per_head", p, "rows", s.rows, shape.rows);
    check_same("per_head", p, "columns", s.columns, shape.columns);
    shape.heads += s.heads;
  }
  ColumnMask result(shape);
  std::int64_t head = 0;
  for (const ColumnMask& part : parts) {
    for (std::int64_t h = 0; h < part.shape().heads; ++h, ++head) {
      for (std::int64_t b = 0; b < shape.batch; ++b) copy_plane(result, b, head, part, b, h);
    }
  }
  return result;
}

ColumnMask stack_batch(std::span<const ColumnMask> parts) {
  core::check(!parts.empty(), "stack_batch: no parts: expected at least one mask");
  MaskShape shape = parts[0].shape();
  shape.batch = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const MaskShape& s = parts[p].shape();
    check_same("stack_batch", p, "heads", s.heads, shape.heads);
    check_same("stack_batch", p, "rows", s.rows, shape.rows);
    check_same("stack_batch", p, "columns", s.columns, shape.columns);
    shape.batch += s.batch;
  }
  ColumnMask result(shape);
  std::int64_t batch = 0;
  for (const ColumnMask& part : parts) {
    for (std::int64_t b = 0; b < part.shape().batch; ++b, ++batch) {
      for (std::int64_t h = 0; h < shape.heads; ++h) copy_plane(result, batch, h, part, b, h);
    }
  }
  return result;
}

}  // namespace flashmask::masks
