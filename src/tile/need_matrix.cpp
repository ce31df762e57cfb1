#include <algorithm>

#include "core/check.hpp"
#include "flashmask/tile.hpp"
#include "tile/class_runs.hpp"

namespace flashmask {

// A chunk of keys is needed iff its chunk x chunk tile is not masked under the exact rule, for some mask head.
NeedMatrix NeedMatrix::build(const ColumnMask& mask, std::int64_t chunk) {
  core::check(chunk >= 1, "chunk is {} rows: it must be at least 1", chunk);
  const MaskShape& s = mask.shape();
  const tile::RowTiling tiling(s.rows, chunk);
  NeedMatrix needs;
  needs.batch_ = s.batch;
  needs.row_chunks_ = tiling.count();
  needs.column_chunks_ = tile::ceil_div(s.columns, chunk);
  needs.words_ = tile::ceil_div(needs.column_chunks_, 64);
  needs.bits_.assign(static_cast<std::size_t>(needs.batch_ * needs.row_chunks_ * needs.words_), 0);
  tile::ColumnBlockClassifier classifier(tiling, TileRule::exact);
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const tile::CanonicalColumns columns(mask, batch, head);
      for (std::int64_t j = 0; j < needs.column_chunks_; ++j) {
        const std::uint64_t bit = std::uint64_t{1} << (j & 63);
        for (const TileRun& run : classifier.classify(columns, j * chunk, std::min((j + 1) * chunk, s.columns))) {
          if (run.tile_class == TileClass::masked) continue;
          for (std::int64_t i = run.first; i < run.first + run.count; ++i) {
            needs.bits_[static_cast<std::size_t>((batch * needs.row_chunks_ + i) * needs.words_ + (j >> 6))] |= bit;
          }
        }
      }
    }
  }
  return needs;
}

}  // namespace flashmask
