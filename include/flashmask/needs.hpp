// Need sets: which chunks of keys the rows of a chunk can see (docs/balance.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "flashmask/mask.hpp"

namespace flashmask {

/// Consecutive chunks [begin, end).
struct ChunkRun {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  friend bool operator==(const ChunkRun&, const ChunkRun&) = default;
};

/// Need sets: for `chunk` consecutive rows and columns (self-attention order), whether any row of row chunk i sees any
/// column of column chunk j in batch row b under any mask head, decided exactly. Held as runs of column chunks: the
/// rows of structured masks need one to a few, so 65,536 chunks take a megabyte where a bit each would take 512.
class NeedRuns {
 public:
  NeedRuns() = default;
  /// Nobody needs anything until `add` says so. Throws invalid_argument for a negative extent or one above 2^31 - 1.
  NeedRuns(std::int64_t batch, std::int64_t row_chunks, std::int64_t column_chunks);
  /// Throws invalid_argument if chunk < 1. The last row and column chunk may be ragged. O(columns) a mask head and
  /// O(runs), so four million tokens in chunks of 64 take some 50 ms.
  static NeedRuns build(const ColumnMask& mask, std::int64_t chunk);

  /// Row chunk `row_chunk` needs the column chunks of `run` too. Rows come in ascending order of (batch, row chunk),
  /// the runs of a row in that of their begins; runs that touch become one. Throws invalid_argument otherwise, and for
  /// a run that is empty or outside of the column chunks.
  void add(std::int64_t batch, std::int64_t row_chunk, ChunkRun run);

  [[nodiscard]] std::int64_t batch() const { return batch_; }
  [[nodiscard]] std::int64_t row_chunks() const { return row_chunks_; }
  [[nodiscard]] std::int64_t column_chunks() const { return column_chunks_; }
  /// Column chunks that one row chunk needs: runs, ascending, none touches the next.
  [[nodiscard]] std::span<const ChunkRun> row(std::int64_t batch, std::int64_t row_chunk) const {
    const auto r = static_cast<std::size_t>(batch * row_chunks_ + row_chunk);
    if (r >= ends_.size()) return {};
    const std::size_t begin = r == 0 ? 0 : ends_[r - 1];
    return std::span(runs_).subspan(begin, ends_[r] - begin);
  }
  /// O(log runs of the row).
  [[nodiscard]] bool needs(std::int64_t batch, std::int64_t row_chunk, std::int64_t column_chunk) const;
  friend bool operator==(const NeedRuns&, const NeedRuns&) = default;

 private:
  void append_rows(std::int64_t batch, std::vector<std::pair<std::int32_t, std::int32_t>>& toggles);

  std::int64_t batch_ = 0, row_chunks_ = 0, column_chunks_ = 0;
  std::vector<std::size_t> ends_;  // of the rows in runs_, by (batch, row chunk), up to the last that needs anything
  std::vector<ChunkRun> runs_;
};

}  // namespace flashmask
