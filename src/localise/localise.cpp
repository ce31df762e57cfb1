#include "flashmask/localise.hpp"

#include <algorithm>
#include <limits>

#include "core/check.hpp"

namespace flashmask {
namespace {

void check_ascending(std::span<const std::int32_t> chunks, std::int64_t count, const char* what) {
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    core::check(chunks[i] >= 0 && chunks[i] < count, "{}[{}] = {} is not a chunk: allowed are 0 to {}", what, i,
                chunks[i], count - 1);
    core::check(i == 0 || chunks[i - 1] < chunks[i],
                "{} must ascend strictly, but [{}] = {} is followed by {}: sort the chunks of a rank before localising",
                what, i - 1, chunks[i - 1], chunks[i]);
  }
}

std::int64_t chunk_count(std::int64_t extent, std::int64_t chunk) {
  return (extent + chunk - 1) / chunk;
}

std::int64_t extent_of(std::span<const std::int32_t> chunks, std::int64_t extent, std::int64_t chunk) {
  if (chunks.empty()) return 0;
  const std::int64_t last_end = std::min(extent, (static_cast<std::int64_t>(chunks.back()) + 1) * chunk);
  return static_cast<std::int64_t>(chunks.size() - 1) * chunk + last_end -
         static_cast<std::int64_t>(chunks.back()) * chunk;
}

void check_fits(const ColumnMask& mask, const RankRows& rank) {
  validate(rank);
  core::check(mask.shape().rows == rank.rows, "the rank cuts {} rows but the mask has {}: give both the same row axis",
              rank.rows, mask.shape().rows);
}

}  // namespace

void validate(const RankRows& rank) {
  core::check(rank.chunk >= 1 && rank.chunk <= std::numeric_limits<std::int32_t>::max(),
              "chunk = {} rows: allowed are 1 to 2^31 - 1", rank.chunk);
  core::check(rank.rows >= 0 && rank.rows <= std::numeric_limits<std::int32_t>::max(),
              "rows = {}: allowed are 0 to 2^31 - 1", rank.rows);
  check_ascending(rank.chunks, chunk_count(rank.rows, rank.chunk), "chunks");
}

std::int64_t local_rows(const RankRows& rank) {
  validate(rank);
  return extent_of(rank.chunks, rank.rows, rank.chunk);
}

std::vector<std::int64_t> global_rows(const RankRows& rank) {
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(local_rows(rank)));
  for (const std::int32_t c : rank.chunks) {
    const std::int64_t begin = c * rank.chunk;
    for (std::int64_t r = begin; r < std::min(rank.rows, begin + rank.chunk); ++r) rows.push_back(r);
  }
  return rows;
}

ColumnMask localise(const ColumnMask& mask, const RankRows& rank) {
  check_fits(mask, rank);
  const MaskShape& from = mask.shape();
  ColumnMask local(MaskShape{from.batch, from.heads, local_rows(rank), from.columns});
  const auto rows = static_cast<std::int32_t>(rank.rows);
  const auto chunk = static_cast<std::int32_t>(rank.chunk);
  const auto count = static_cast<std::int32_t>(rank.chunks.size());
  for (std::int64_t b = 0; b < from.batch; ++b) {
    for (std::int64_t h = 0; h < from.heads; ++h) {
      for (std::int64_t j = 0; j < from.columns; ++j) {
        local.set(b, h, j, localise_column(mask.at(b, h, j), rows, rank.chunks.data(), count, chunk));
      }
    }
  }
  return local;
}

ColumnMask localise(const ColumnMask& mask, const RankRows& rank,
                    std::span<const std::vector<std::int32_t>> column_chunks) {
  check_fits(mask, rank);
  const MaskShape& from = mask.shape();
  core::check(static_cast<std::int64_t>(column_chunks.size()) == from.batch,
              "column_chunks has {} lists but the mask has {} batch rows: give one list a batch row",
              column_chunks.size(), from.batch);
  std::int64_t columns = 0;
  for (const auto& list : column_chunks) {
    check_ascending(list, chunk_count(from.columns, rank.chunk), "column_chunks");
    columns = std::max(columns, extent_of(list, from.columns, rank.chunk));
  }
  const auto here = static_cast<std::int32_t>(local_rows(rank));
  ColumnMask local(MaskShape{from.batch, from.heads, here, columns});
  const auto rows = static_cast<std::int32_t>(rank.rows);
  const auto chunk = static_cast<std::int32_t>(rank.chunk);
  const auto count = static_cast<std::int32_t>(rank.chunks.size());
  for (std::int64_t b = 0; b < from.batch; ++b) {
    for (std::int64_t h = 0; h < from.heads; ++h) {
      std::int64_t to = 0;
      for (const std::int32_t c : column_chunks[static_cast<std::size_t>(b)]) {
        const std::int64_t begin = c * rank.chunk;
        for (std::int64_t j = begin; j < std::min(from.columns, begin + rank.chunk); ++j) {
          local.set(b, h, to++,
                    canonical(localise_column(mask.at(b, h, j), rows, rank.chunks.data(), count, chunk), here));
        }
      }
      for (; to < columns; ++to) local.set(b, h, to, canonical(HiddenRows{0, here, 0, 0}, here));
    }
  }
  local.canonicalise();
  return local;
}

}  // namespace flashmask
