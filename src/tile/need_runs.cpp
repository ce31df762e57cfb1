#include <algorithm>
#include <iterator>
#include <utility>

#include "core/check.hpp"
#include "flashmask/needs.hpp"
#include "tile/class_runs.hpp"

namespace flashmask {
namespace {

constexpr std::int64_t kMostNeedChunks = 2147483647;  // a run of chunks is two int32

/// The row chunks that see some column of a block: collected column by column, read as runs.
class SeeingRows {
 public:
  SeeingRows(std::int64_t rows, std::int64_t chunk)
      : rows_(static_cast<std::int32_t>(rows)),
        chunk_(static_cast<std::uint32_t>(std::min(chunk, std::max<std::int64_t>(rows, 1)))) {}

  /// A canonical column: its hidden runs neither overlap nor touch, and the upper one has the smaller rows.
  void include(const HiddenRows& hidden) {
    std::int32_t from = 0;
    if (hidden.uts < hidden.ute) {
      include_visible(0, hidden.uts);
      from = hidden.ute;
    }
    if (hidden.lts < hidden.lte) {
      include_visible(from, hidden.lts);
      from = hidden.lte;
    }
    include_visible(from, rows_);
  }

  /// Ascending, none touches the next; valid until the next call. Starts anew after it.
  std::span<const ChunkRun> take() {
    std::sort(found_.begin(), found_.end(), [](ChunkRun a, ChunkRun b) { return a.begin < b.begin; });
    runs_.clear();
    for (const ChunkRun& run : found_) {
      if (!runs_.empty() && run.begin <= runs_.back().end) {
        runs_.back().end = std::max(runs_.back().end, run.end);
      } else {
        runs_.push_back(run);
      }
    }
    found_.clear();
    return runs_;
  }

 private:
  void include_visible(std::int32_t begin, std::int32_t end) {
    if (begin >= end) return;
    const ChunkRun run{static_cast<std::int32_t>(static_cast<std::uint32_t>(begin) / chunk_),
                       static_cast<std::int32_t>(static_cast<std::uint32_t>(end - 1) / chunk_) + 1};
    // The columns of a chunk mostly see about the same rows, in at most three runs.
    for (std::size_t back = 1; back <= std::min<std::size_t>(3, found_.size()); ++back) {
      ChunkRun& known = found_[found_.size() - back];
      if (run.begin > known.end || known.begin > run.end) continue;
      known = {std::min(known.begin, run.begin), std::max(known.end, run.end)};
      return;
    }
    found_.push_back(run);
  }

  std::int32_t rows_;
  std::uint32_t chunk_;
  std::vector<ChunkRun> found_, runs_;
};

}  // namespace

NeedRuns::NeedRuns(std::int64_t batch, std::int64_t row_chunks, std::int64_t column_chunks)
    : batch_(batch), row_chunks_(row_chunks), column_chunks_(column_chunks) {
  for (const auto& [name, extent] :
       {std::pair{"batch", batch}, std::pair{"row_chunks", row_chunks}, std::pair{"column_chunks", column_chunks}}) {
    core::check(extent >= 0 && extent <= kMostNeedChunks, "{} = {}: must be in [0, 2^31 - 1]", name, extent);
  }
}

void NeedRuns::add(std::int64_t batch, std::int64_t row_chunk, ChunkRun run) {
  core::check(batch >= 0 && batch < batch_ && row_chunk >= 0 && row_chunk < row_chunks_,
              "batch row {}, row chunk {}: there are {} of {} chunks", batch, row_chunk, batch_, row_chunks_);
  core::check(run.begin >= 0 && run.begin < run.end && run.end <= column_chunks_,
              "run [{}, {}) of row chunk {} is empty or outside of the {} column chunks", run.begin, run.end, row_chunk,
              column_chunks_);
  const auto r = static_cast<std::size_t>(batch * row_chunks_ + row_chunk);
  core::check(r + 1 >= ends_.size(), "batch row {}, row chunk {} comes after a later one: add rows in ascending order",
              batch, row_chunk);
  if (r + 1 > ends_.size()) {
    ends_.resize(r + 1, runs_.size());
  } else if (runs_.back().end >= run.begin) {
    core::check(runs_.back().begin <= run.begin,
                "run [{}, {}) of row chunk {} begins before [{}, {}): add the runs of a row in ascending order",
                run.begin, run.end, row_chunk, runs_.back().begin, runs_.back().end);
    runs_.back().end = std::max(runs_.back().end, run.end);
    return;
  }
  runs_.push_back(run);
  ends_.back() = runs_.size();
}

bool NeedRuns::needs(std::int64_t batch, std::int64_t row_chunk, std::int64_t column_chunk) const {
  const auto runs = row(batch, row_chunk);
  const auto after = std::upper_bound(runs.begin(), runs.end(), column_chunk,
                                      [](std::int64_t c, const ChunkRun& run) { return c < run.begin; });
  return after != runs.begin() && column_chunk < (after - 1)->end;
}

// A chunk of keys is needed iff some column of it is visible to a row of the chunk, for some mask head.
NeedRuns NeedRuns::build(const ColumnMask& mask, std::int64_t chunk) {
  core::check(chunk >= 1, "chunk is {} rows: it must be at least 1", chunk);
  const MaskShape& s = mask.shape();
  NeedRuns needs(s.batch, tile::ceil_div(s.rows, chunk), tile::ceil_div(s.columns, chunk));
  SeeingRows seeing(s.rows, chunk);
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    std::vector<tile::CanonicalColumns> heads;
    for (std::int64_t head = 0; head < s.heads; ++head) heads.emplace_back(mask, batch, head);
    std::vector<std::pair<std::int32_t, std::int32_t>>
        toggles;  // (row chunk, column chunk) where needing begins or ends
    for (std::int64_t j = 0; j < needs.column_chunks_; ++j) {
      const std::int64_t end = std::min((j + 1) * chunk, s.columns);
      for (const tile::CanonicalColumns& columns : heads) {
        for (std::int64_t column = j * chunk; column < end; ++column) seeing.include(columns[column]);
      }
      for (const ChunkRun& rows : seeing.take()) {
        toggles.emplace_back(rows.begin, static_cast<std::int32_t>(j));
        toggles.emplace_back(rows.end, static_cast<std::int32_t>(j));
      }
    }
    needs.append_rows(batch, toggles);
  }
  return needs;
}

/// The transpose, row after row: `borders` are the column chunks at which the set of the row begins or ends a run. A
/// column chunk that joins or leaves the set turns the borders on both of its sides.
void NeedRuns::append_rows(std::int64_t batch, std::vector<std::pair<std::int32_t, std::int32_t>>& toggles) {
  std::stable_sort(toggles.begin(), toggles.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::int32_t> borders, turned, next;
  auto toggle = toggles.begin();
  for (std::int64_t row = 0; row < row_chunks_; ++row) {
    turned.clear();
    for (; toggle != toggles.end() && toggle->first == row; ++toggle) {
      if (!turned.empty() && turned.back() == toggle->second) {
        turned.pop_back();
      } else {
        turned.push_back(toggle->second);
      }
      turned.push_back(toggle->second + 1);
    }
    if (!turned.empty()) {
      next.clear();
      std::set_symmetric_difference(borders.begin(), borders.end(), turned.begin(), turned.end(),
                                    std::back_inserter(next));
      borders.swap(next);
    }
    for (std::size_t k = 0; k < borders.size(); k += 2) add(batch, row, {borders[k], borders[k + 1]});
  }
}

}  // namespace flashmask
