// Hidden runs of one column as an import finds them: at most two, or an error that names the place and the runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flashmask/mask.hpp"

namespace flashmask::mask {

/// Half-open rows [begin, end).
struct RowRun {
  std::int64_t begin = 0, end = 0;
  friend bool operator==(const RowRun&, const RowRun&) = default;
};

/// Where a column stands, for errors.
struct ColumnPlace {
  std::string_view format;
  std::int64_t batch = 0, head = 0, column = 0;
};

/// Throws invalid_argument: the column's hidden rows form more than two runs.
[[noreturn]] void fail_runs(const ColumnPlace& place, const std::vector<RowRun>& runs);

/// The column whose hidden rows in [0, rows) are exactly `runs`: ascending, none empty, none touching.
HiddenRows column_of_hidden(const ColumnPlace& place, const std::vector<RowRun>& runs, std::int64_t rows);

/// The column whose visible rows are exactly `visible`: ascending and disjoint; touching and empty ones are fine.
HiddenRows column_of_visible(const ColumnPlace& place, const std::vector<RowRun>& visible, std::int64_t rows);

}  // namespace flashmask::mask
