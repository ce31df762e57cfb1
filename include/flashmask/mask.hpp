// What a mask is: four int32 row numbers per key column (docs/mask.md).
//
//   hidden(column) = [LTS, LTE) united with [UTS, UTE), intersected with [0, rows)
//
// A pair with start >= end is empty. Any int32 values are legal on input; canonical form makes them unique.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashmask/host_device.hpp"

namespace flashmask {

/// Shape of a mask: `batch` x `heads` x `columns` quadruples that speak about `rows` query rows.
/// `heads` is 1, the number of KV heads or the number of query heads; query head h uses h / (query_heads / heads).
struct MaskShape {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  [[nodiscard]] std::int64_t vector_size() const { return batch * heads * columns; }
  friend bool operator==(const MaskShape&, const MaskShape&) = default;
};

/// The hidden rows of one column, as the two half-open intervals [lts, lte) and [uts, ute).
struct HiddenRows {
  std::int32_t lts = 0;
  std::int32_t lte = 0;
  std::int32_t uts = 0;
  std::int32_t ute = 0;

  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr bool hides(std::int32_t row) const {
    return (row >= lts && row < lte) || (row >= uts && row < ute);
  }
  friend bool operator==(const HiddenRows&, const HiddenRows&) = default;
};

/// Canonical form of one column (unique; same hidden rows): clamped to [0, rows], touching runs merged, an absent run
/// stored as (rows, 0), a run that starts at row 0 (a dead column too) as the upper pair, any other single run as the
/// lower pair, and of two runs the upper one (smaller rows) as the upper pair, so ute < lts.
FLASHMASK_HOST_DEVICE constexpr HiddenRows canonical(HiddenRows raw, std::int32_t rows) {
  struct Run {
    std::int32_t start, end;
  };
  const auto clamp = [rows](std::int32_t x) { return x < 0 ? 0 : (x > rows ? rows : x); };
  Run a{clamp(raw.uts), clamp(raw.ute)};
  Run b{clamp(raw.lts), clamp(raw.lte)};
  bool has_a = a.start < a.end;
  bool has_b = b.start < b.end;
  if (has_a && has_b) {
    if (b.start < a.start) {
      const Run t = a;
      a = b;
      b = t;
    }
    if (b.start <= a.end) {  // overlapping or touching
      if (b.end > a.end) a.end = b.end;
      has_b = false;
    }
  } else if (has_b) {
    a = b;
    has_a = true;
    has_b = false;
  }
  HiddenRows out{rows, 0, rows, 0};
  if (!has_a) return out;
  if (has_b) {
    out.uts = a.start, out.ute = a.end;
    out.lts = b.start, out.lte = b.end;
  } else if (a.start == 0) {
    out.uts = 0, out.ute = a.end;
  } else {
    out.lts = a.start, out.lte = a.end;
  }
  return out;
}

/// Number of rows in [0, rows) that a canonical column hides.
FLASHMASK_HOST_DEVICE constexpr std::int32_t hidden_count(const HiddenRows& c) {
  return (c.lte > c.lts ? c.lte - c.lts : 0) + (c.ute > c.uts ? c.ute - c.uts : 0);
}

/// Non-owning mask: four contiguous [batch][heads][columns] int32 vectors in host or device memory.
struct MaskView {
  const std::int32_t* lts = nullptr;
  const std::int32_t* lte = nullptr;
  const std::int32_t* uts = nullptr;
  const std::int32_t* ute = nullptr;
  MaskShape shape;

  [[nodiscard]] std::int64_t index(std::int64_t batch, std::int64_t head, std::int64_t column) const {
    return (batch * shape.heads + head) * shape.columns + column;
  }
  /// The four numbers at a flat index; host memory only.
  [[nodiscard]] HiddenRows at(std::int64_t i) const { return {lts[i], lte[i], uts[i], ute[i]}; }
};

/// Owning host mask. Value type; everything in the library that reads a mask takes one of these or its view.
class ColumnMask {
 public:
  ColumnMask() = default;

  /// A mask that hides nothing (already canonical). Throws invalid_argument on a negative extent or one above 2^31 - 1.
  explicit ColumnMask(MaskShape shape);

  /// Takes four vectors of shape.vector_size() elements, any int32 values. Throws invalid_argument naming the vector
  /// whose length is wrong. The result keeps the values as given until canonicalise().
  ColumnMask(MaskShape shape, std::vector<std::int32_t> lts, std::vector<std::int32_t> lte,
             std::vector<std::int32_t> uts, std::vector<std::int32_t> ute);

  [[nodiscard]] const MaskShape& shape() const { return shape_; }
  [[nodiscard]] MaskView view() const;
  [[nodiscard]] std::span<const std::int32_t> lts() const { return lts_; }
  [[nodiscard]] std::span<const std::int32_t> lte() const { return lte_; }
  [[nodiscard]] std::span<const std::int32_t> uts() const { return uts_; }
  [[nodiscard]] std::span<const std::int32_t> ute() const { return ute_; }

  [[nodiscard]] HiddenRows at(std::int64_t batch, std::int64_t head, std::int64_t column) const;
  void set(std::int64_t batch, std::int64_t head, std::int64_t column, const HiddenRows& rows);

  /// Rewrites every column to canonical form; idempotent. Returns *this.
  ColumnMask& canonicalise();
  [[nodiscard]] bool is_canonical() const { return canonical_; }

  /// Whether query row `row` sees key column `column`.
  [[nodiscard]] bool visible(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t column) const;

  /// Visible cells over batch and mask heads, exact.
  [[nodiscard]] std::int64_t visible_cells() const;
  /// Visible cells of one (batch, mask head).
  [[nodiscard]] std::int64_t visible_cells(std::int64_t batch, std::int64_t head) const;
  /// Visible columns of every row of one (batch, mask head); size rows. O(rows + columns).
  [[nodiscard]] std::vector<std::int64_t> row_counts(std::int64_t batch, std::int64_t head) const;
  /// Row-major [rows][columns] 0/1 matrix of one (batch, mask head); for tests and pictures. Refuses more than 2^31
  /// cells.
  [[nodiscard]] std::vector<std::uint8_t> dense(std::int64_t batch, std::int64_t head) const;

  /// 64-bit digest of shape and canonical content: equal for two masks iff they hide the same cells (up to collisions).
  [[nodiscard]] std::uint64_t digest() const;

  friend bool operator==(const ColumnMask&, const ColumnMask&) = default;

 private:
  MaskShape shape_;
  std::vector<std::int32_t> lts_, lte_, uts_, ute_;
  bool canonical_ = false;
};

}  // namespace flashmask
