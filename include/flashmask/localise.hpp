// From the mask of all rows to the mask of one rank's rows, without communication (docs/overlap.md).
//
// A rank owns whole chunks of `chunk` consecutive rows, stored one after the other in ascending order. A row boundary
// of the global mask becomes "how many of my rows lie before it". That map is monotone, so it keeps every interval of
// every vector exactly: the rank's rows see precisely what they saw in the global mask.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashmask/host_device.hpp"
#include "flashmask/mask.hpp"

namespace flashmask {

/// Number of a rank's rows that lie before global row x, for x in [0, rows]: the i-th owned chunk c contributes
/// clip(x - c * chunk, 0, chunk), and since the chunks ascend all chunks before the last one reached are whole.
/// `chunks` points to `count` strictly ascending chunk numbers. O(log count), no division.
FLASHMASK_HOST_DEVICE constexpr std::int32_t localise_row(std::int32_t x, const std::int32_t* chunks,
                                                          std::int32_t count, std::int32_t chunk) {
  std::int32_t low = 0;  // invariant: chunks below `low` start before x, chunks from `high` on do not
  std::int32_t high = count;
  while (low < high) {
    const std::int32_t middle = low + (high - low) / 2;
    if (static_cast<std::int64_t>(chunks[middle]) * chunk < x) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) return 0;
  const std::int64_t into = x - static_cast<std::int64_t>(chunks[low - 1]) * chunk;
  return (low - 1) * chunk + static_cast<std::int32_t>(into < chunk ? into : chunk);
}

/// All four boundaries of one column, clamped to [0, rows] first. Not canonicalised: use `canonical(.., local rows)`.
FLASHMASK_HOST_DEVICE constexpr HiddenRows localise_column(const HiddenRows& column, std::int32_t rows,
                                                           const std::int32_t* chunks, std::int32_t count,
                                                           std::int32_t chunk) {
  const std::int32_t bounds[4] = {column.lts, column.lte, column.uts, column.ute};
  std::int32_t local[4] = {};
  for (int i = 0; i < 4; ++i) {
    const std::int32_t x = bounds[i] < 0 ? 0 : (bounds[i] > rows ? rows : bounds[i]);
    local[i] = localise_row(x, chunks, count, chunk);
  }
  return {local[0], local[1], local[2], local[3]};
}

/// The rows of one rank on the global row axis. The last chunk of the axis may be shorter (ragged), any other is whole.
struct RankRows {
  std::int64_t rows = 0;                 ///< global rows
  std::int64_t chunk = 0;                ///< rows of a chunk
  std::span<const std::int32_t> chunks;  ///< chunk numbers the rank owns, strictly ascending
};

/// Throws invalid_argument unless chunk >= 1, rows in [0, 2^31) and the chunks are strictly ascending and on the axis:
/// out of order, distinct boundaries would collapse onto one another and hide rows that are visible.
void validate(const RankRows& rank);

/// Rows the rank owns.
std::int64_t local_rows(const RankRows& rank);

/// Global row of every local row, ascending.
std::vector<std::int64_t> global_rows(const RankRows& rank);

/// The rank's mask: local rows x all columns of `mask` (columns keep their global order), each value mapped by
/// `localise_column`; canonicalise() it before use. Throws invalid_argument for a rank that does not fit the mask.
ColumnMask localise(const ColumnMask& mask, const RankRows& rank);

/// The rank's mask over a list of column chunks per batch row, as the key buffer lays them out: for batch row b the
/// columns of `column_chunks[b]` (strictly ascending), one after the other. The result is canonical and has as many
/// columns as the longest list; shorter lists are followed by columns that no row sees.
ColumnMask localise(const ColumnMask& mask, const RankRows& rank,
                    std::span<const std::vector<std::int32_t>> column_chunks);

}  // namespace flashmask
