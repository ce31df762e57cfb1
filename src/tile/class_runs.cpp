#include "tile/class_runs.hpp"

#include <algorithm>
#include <array>

namespace flashmask::tile {
namespace {

void append_merged(std::vector<TileRun>& runs, std::size_t first_own, const TileRun& run) {
  if (runs.size() > first_own && runs.back().tile_class == run.tile_class) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

}  // namespace

void append_class_runs(const BlockBounds& bounds, const RowTiling& tiling, std::vector<TileRun>& runs) {
  if (tiling.count() == 0) return;
  std::array<std::int64_t, 18> breaks;  // tiles at which the class may change
  std::size_t size = 0;
  breaks[size++] = 0;
  breaks[size++] = tiling.count();
  for (const std::int32_t row : {bounds.lts_min, bounds.lts_max, bounds.lte_min, bounds.lte_max, bounds.uts_min,
                                 bounds.uts_max, bounds.ute_min, bounds.ute_max}) {
    if (row <= 0 || row >= tiling.rows()) continue;  // the same side of every tile
    const std::int64_t tile = tiling.tile_of(row);
    breaks[size++] = tile;
    if (tiling.begin(tile) != row) breaks[size++] = tile + 1;  // the tile is cut: it stands alone
  }
  std::sort(breaks.begin(), breaks.begin() + static_cast<std::ptrdiff_t>(size));
  const std::size_t first_own = runs.size();
  for (std::size_t i = 0; i + 1 < size; ++i) {
    if (breaks[i] == breaks[i + 1]) continue;
    const TileClass tile_class = classify(bounds, static_cast<std::int32_t>(tiling.begin(breaks[i])),
                                          static_cast<std::int32_t>(tiling.end(breaks[i])));
    append_merged(
        runs, first_own,
        {static_cast<std::int32_t>(breaks[i]), static_cast<std::int32_t>(breaks[i + 1] - breaks[i]), tile_class});
  }
}

CanonicalColumns::CanonicalColumns(const ColumnMask& mask, std::int64_t batch, std::int64_t head)
    : view_(mask.view()),
      first_(view_.index(batch, head, 0)),
      columns_(mask.shape().columns),
      rows_(static_cast<std::int32_t>(mask.shape().rows)),
      canonical_(mask.is_canonical()) {}

ColumnBlockClassifier::ColumnBlockClassifier(const RowTiling& tiling, TileRule rule) : tiling_(tiling), rule_(rule) {
  if (rule == TileRule::exact) {
    masked_steps_.assign(static_cast<std::size_t>(tiling.count()) + 1, 0);
    unmasked_steps_ = masked_steps_;
  }
}

std::span<const TileRun> ColumnBlockClassifier::classify(const CanonicalColumns& columns, std::int64_t begin,
                                                         std::int64_t end) {
  runs_.clear();
  rule_ == TileRule::minmax ? minmax(columns, begin, end) : exact(columns, begin, end);
  return runs_;
}

void ColumnBlockClassifier::minmax(const CanonicalColumns& columns, std::int64_t begin, std::int64_t end) {
  BlockBounds bounds = BlockBounds::none();
  for (std::int64_t column = begin; column < end; ++column) bounds.include(columns[column]);
  append_class_runs(bounds, tiling_, runs_);
}

// On a single canonical column the rule is exact, because its two runs neither overlap nor touch. A tile is masked
// (unmasked) iff it is masked (unmasked) for every one of its columns, so counting columns per class decides it.
void ColumnBlockClassifier::exact(const CanonicalColumns& columns, std::int64_t begin, std::int64_t end) {
  for (std::int64_t column = begin; column < end;) {
    const HiddenRows rows = columns[column];
    std::int64_t next = column + 1;
    while (next < end && columns[next] == rows) ++next;  // columns of one document are mostly alike
    BlockBounds bounds = BlockBounds::none();
    bounds.include(rows);
    column_runs_.clear();
    append_class_runs(bounds, tiling_, column_runs_);
    for (const TileRun& run : column_runs_) {
      if (run.tile_class == TileClass::partial) continue;
      auto& steps = run.tile_class == TileClass::masked ? masked_steps_ : unmasked_steps_;
      steps[static_cast<std::size_t>(run.first)] += next - column;
      steps[static_cast<std::size_t>(run.first + run.count)] -= next - column;
    }
    column = next;
  }
  const std::int64_t width = end - begin;
  std::int64_t masked = 0;
  std::int64_t unmasked = 0;
  for (std::size_t tile = 0; tile < static_cast<std::size_t>(tiling_.count()); ++tile) {
    masked += masked_steps_[tile];
    unmasked += unmasked_steps_[tile];
    masked_steps_[tile] = unmasked_steps_[tile] = 0;
    const TileClass tile_class = masked == width     ? TileClass::masked
                                 : unmasked == width ? TileClass::unmasked
                                                     : TileClass::partial;
    append_merged(runs_, 0, {static_cast<std::int32_t>(tile), 1, tile_class});
  }
  masked_steps_.back() = unmasked_steps_.back() = 0;
}

}  // namespace flashmask::tile
