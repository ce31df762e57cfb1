#include "mask/column_runs.hpp"

#include "core/check.hpp"

namespace flashmask::mask {

void fail_runs(const ColumnPlace& place, const std::vector<RowRun>& runs) {
  constexpr std::size_t shown = 8;
  std::string text;
  for (std::size_t r = 0; r < runs.size() && r < shown; ++r) {
    text += core::format("{}[{}, {})", r == 0 ? "" : ", ", runs[r].begin, runs[r].end);
  }
  if (runs.size() > shown) text += ", ...";
  core::fail(ErrorCode::invalid_argument,
             "{}: batch {}, head {}, column {}: the hidden rows form {} runs {}: a column can hide at most two runs of "
             "rows, so this mask is not representable; reorder the tokens so that fewer runs remain",
             place.format, place.batch, place.head, place.column, runs.size(), text);
}

HiddenRows column_of_hidden(const ColumnPlace& place, const std::vector<RowRun>& runs, std::int64_t rows) {
  if (runs.size() > 2) fail_runs(place, runs);
  HiddenRows raw;
  if (!runs.empty())
    raw.uts = static_cast<std::int32_t>(runs[0].begin), raw.ute = static_cast<std::int32_t>(runs[0].end);
  if (runs.size() == 2) {
    raw.lts = static_cast<std::int32_t>(runs[1].begin), raw.lte = static_cast<std::int32_t>(runs[1].end);
  }
  return canonical(raw, static_cast<std::int32_t>(rows));
}

HiddenRows column_of_visible(const ColumnPlace& place, const std::vector<RowRun>& visible, std::int64_t rows) {
  std::vector<RowRun> hidden;
  std::int64_t seen_to = 0;
  for (const RowRun& run : visible) {
    if (run.begin >= run.end) continue;
    if (run.begin > seen_to) hidden.push_back({seen_to, run.begin});
    seen_to = run.end;
  }
  if (seen_to < rows) hidden.push_back({seen_to, rows});
  return column_of_hidden(place, hidden, rows);
}

}  // namespace flashmask::mask
