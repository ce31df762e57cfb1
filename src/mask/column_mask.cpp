#include <limits>
#include <string_view>
#include <utility>

#include "core/check.hpp"
#include "flashmask/mask.hpp"

namespace flashmask {
namespace {

constexpr std::int64_t extent_limit = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t vector_limit = std::int64_t{1} << 40;  // four terabytes a vector: surely a wrong extent

void check_shape(const MaskShape& shape) {
  const std::pair<std::string_view, std::int64_t> extents[] = {
      {"batch", shape.batch}, {"heads", shape.heads}, {"rows", shape.rows}, {"columns", shape.columns}};
  for (const auto& [name, value] : extents) {
    core::check(value >= 0 && value <= extent_limit, "mask {} = {}: expected 0 to {}, row numbers are int32", name,
                value, extent_limit);
  }
  // Each extent is below 2^31, so the first product fits and the second is tested by division.
  const std::int64_t vectors = shape.batch * shape.heads;
  core::check(vectors == 0 || shape.columns <= vector_limit / vectors,
              "mask batch x heads x columns = {} x {} x {}: expected at most {} columns in all; is one of them a byte "
              "count or a product?",
              shape.batch, shape.heads, shape.columns, vector_limit);
}

void check_length(std::string_view name, const std::vector<std::int32_t>& vector, const MaskShape& shape) {
  core::check(std::ssize(vector) == shape.vector_size(),
              "mask vector {} has {} elements: expected batch x heads x columns = {} x {} x {} = {}", name,
              vector.size(), shape.batch, shape.heads, shape.columns, shape.vector_size());
}

void check_plane(const MaskShape& shape, std::int64_t batch, std::int64_t head) {
  core::check(batch >= 0 && batch < shape.batch, "batch row {}: the mask has {}", batch, shape.batch);
  core::check(head >= 0 && head < shape.heads, "mask head {}: the mask has {}", head, shape.heads);
}

/// Finaliser of splitmix64 over a running state: cheap, and every input bit reaches every output bit.
std::uint64_t mix(std::uint64_t state, std::uint64_t value) {
  std::uint64_t x = (state ^ value) + 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

std::uint64_t pack(std::int32_t a, std::int32_t b) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32 | static_cast<std::uint32_t>(b);
}

}  // namespace

ColumnMask::ColumnMask(MaskShape shape) : shape_(shape), canonical_(true) {
  check_shape(shape);
  const auto size = static_cast<std::size_t>(shape.vector_size());
  const auto rows = static_cast<std::int32_t>(shape.rows);
  lts_.assign(size, rows);
  lte_.assign(size, 0);
  uts_.assign(size, rows);
  ute_.assign(size, 0);
}

ColumnMask::ColumnMask(MaskShape shape, std::vector<std::int32_t> lts, std::vector<std::int32_t> lte,
                       std::vector<std::int32_t> uts, std::vector<std::int32_t> ute)
    : shape_(shape), lts_(std::move(lts)), lte_(std::move(lte)), uts_(std::move(uts)), ute_(std::move(ute)) {
  check_shape(shape);
  check_length("lts", lts_, shape);
  check_length("lte", lte_, shape);
  check_length("uts", uts_, shape);
  check_length("ute", ute_, shape);
}

MaskView ColumnMask::view() const {
  return {lts_.data(), lte_.data(), uts_.data(), ute_.data(), shape_};
}

HiddenRows ColumnMask::at(std::int64_t batch, std::int64_t head, std::int64_t column) const {
  check_plane(shape_, batch, head);
  core::check(column >= 0 && column < shape_.columns, "column {}: the mask has {}", column, shape_.columns);
  const MaskView v = view();
  return v.at(v.index(batch, head, column));
}

void ColumnMask::set(std::int64_t batch, std::int64_t head, std::int64_t column, const HiddenRows& rows) {
  check_plane(shape_, batch, head);
  core::check(column >= 0 && column < shape_.columns, "column {}: the mask has {}", column, shape_.columns);
  const auto i = static_cast<std::size_t>(view().index(batch, head, column));
  lts_[i] = rows.lts, lte_[i] = rows.lte, uts_[i] = rows.uts, ute_[i] = rows.ute;
  canonical_ = canonical_ && rows == canonical(rows, static_cast<std::int32_t>(shape_.rows));
}

ColumnMask& ColumnMask::canonicalise() {
  if (canonical_) return *this;
  const auto rows = static_cast<std::int32_t>(shape_.rows);
  for (std::size_t i = 0; i < lts_.size(); ++i) {
    const HiddenRows c = canonical({lts_[i], lte_[i], uts_[i], ute_[i]}, rows);
    lts_[i] = c.lts, lte_[i] = c.lte, uts_[i] = c.uts, ute_[i] = c.ute;
  }
  canonical_ = true;
  return *this;
}

bool ColumnMask::visible(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t column) const {
  core::check(row >= 0 && row < shape_.rows, "row {}: the mask has {}", row, shape_.rows);
  return !at(batch, head, column).hides(static_cast<std::int32_t>(row));
}

std::int64_t ColumnMask::visible_cells() const {
  std::int64_t cells = 0;
  for (std::int64_t b = 0; b < shape_.batch; ++b) {
    for (std::int64_t h = 0; h < shape_.heads; ++h) cells += visible_cells(b, h);
  }
  return cells;
}

std::int64_t ColumnMask::visible_cells(std::int64_t batch, std::int64_t head) const {
  check_plane(shape_, batch, head);
  const MaskView v = view();
  const auto rows = static_cast<std::int32_t>(shape_.rows);
  std::int64_t cells = 0;
  for (std::int64_t j = 0; j < shape_.columns; ++j) {
    // Canonical form first: overlapping raw runs would be counted twice.
    cells += rows - hidden_count(canonical(v.at(v.index(batch, head, j)), rows));
  }
  return cells;
}

std::vector<std::int64_t> ColumnMask::row_counts(std::int64_t batch, std::int64_t head) const {
  check_plane(shape_, batch, head);
  const MaskView v = view();
  const auto rows = static_cast<std::int32_t>(shape_.rows);
  std::vector<std::int64_t> change(static_cast<std::size_t>(rows) + 1, 0);
  change[0] = shape_.columns;
  const auto hide = [&change](std::int32_t start, std::int32_t end) {
    if (start >= end) return;
    --change[static_cast<std::size_t>(start)];
    ++change[static_cast<std::size_t>(end)];
  };
  for (std::int64_t j = 0; j < shape_.columns; ++j) {
    const HiddenRows c = canonical(v.at(v.index(batch, head, j)), rows);
    hide(c.lts, c.lte);
    hide(c.uts, c.ute);
  }
  for (std::size_t i = 1; i < change.size(); ++i) change[i] += change[i - 1];
  change.resize(static_cast<std::size_t>(rows));
  return change;
}

std::vector<std::uint8_t> ColumnMask::dense(std::int64_t batch, std::int64_t head) const {
  check_plane(shape_, batch, head);
  constexpr std::int64_t cell_limit = std::int64_t{1} << 31;
  core::check(shape_.rows == 0 || shape_.columns <= cell_limit / shape_.rows,
              "dense mask of {} x {} cells: expected at most {}; use row_counts or the vectors", shape_.rows,
              shape_.columns, cell_limit);
  const MaskView v = view();
  const auto columns = static_cast<std::size_t>(shape_.columns);
  std::vector<std::uint8_t> cells(static_cast<std::size_t>(shape_.rows) * columns);
  for (std::size_t j = 0; j < columns; ++j) {
    const HiddenRows c = v.at(v.index(batch, head, static_cast<std::int64_t>(j)));
    for (std::int64_t i = 0; i < shape_.rows; ++i) {
      cells[static_cast<std::size_t>(i) * columns + j] = c.hides(static_cast<std::int32_t>(i)) ? 0 : 1;
    }
  }
  return cells;
}

std::uint64_t ColumnMask::digest() const {
  std::uint64_t state = 0x666C6173686D6173ULL;
  for (const std::int64_t extent : {shape_.batch, shape_.heads, shape_.rows, shape_.columns}) {
    state = mix(state, static_cast<std::uint64_t>(extent));
  }
  const auto rows = static_cast<std::int32_t>(shape_.rows);
  const MaskView v = view();
  for (std::int64_t i = 0; i < shape_.vector_size(); ++i) {
    const HiddenRows c = canonical(v.at(i), rows);
    state = mix(mix(state, pack(c.lts, c.lte)), pack(c.uts, c.ute));
  }
  return state;
}

}  // namespace flashmask
