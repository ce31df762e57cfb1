#include <algorithm>

#include "core/check.hpp"
#include "flashmask/tile.hpp"
#include "tile/class_runs.hpp"

namespace flashmask {

double element_density(const ColumnMask& mask) {
  const MaskShape& s = mask.shape();
  const double cells = static_cast<double>(s.batch) * static_cast<double>(s.heads) * static_cast<double>(s.rows) *
                       static_cast<double>(s.columns);
  return cells == 0 ? 1.0 : static_cast<double>(mask.visible_cells()) / cells;
}

double tile_density(const ColumnMask& mask, TileShape shape) {
  const TileCounts counts = tile_counts(mask, shape);
  return counts.total() == 0
             ? 1.0
             : static_cast<double>(counts.partial + counts.unmasked) / static_cast<double>(counts.total());
}

TileCounts tile_counts(const ColumnMask& mask, TileShape shape, TileRule rule) {
  core::check(shape.block_m > 0 && shape.block_n > 0,
              "tile shape is {} x {} (block_m x block_n): both must be positive, e.g. 128 x 128", shape.block_m,
              shape.block_n);
  const MaskShape& s = mask.shape();
  tile::ColumnBlockClassifier classifier(tile::RowTiling(s.rows, shape.block_m), rule);
  TileCounts counts;
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const tile::CanonicalColumns columns(mask, batch, head);
      for (std::int64_t begin = 0; begin < s.columns; begin += shape.block_n) {
        for (const TileRun& run : classifier.classify(columns, begin, std::min(begin + shape.block_n, s.columns))) {
          switch (run.tile_class) {
            case TileClass::masked:
              counts.masked += run.count;
              break;
            case TileClass::partial:
              counts.partial += run.count;
              break;
            case TileClass::unmasked:
              counts.unmasked += run.count;
              break;
          }
        }
      }
    }
  }
  return counts;
}

}  // namespace flashmask
