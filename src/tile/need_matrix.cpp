#include <algorithm>

#include "flashmask/needs.hpp"
#include "flashmask/tile.hpp"

namespace flashmask {

NeedMatrix NeedMatrix::build(const ColumnMask& mask, std::int64_t chunk) {
  const NeedRuns runs = NeedRuns::build(mask, chunk);
  NeedMatrix needs;
  needs.batch_ = runs.batch();
  needs.row_chunks_ = runs.row_chunks();
  needs.column_chunks_ = runs.column_chunks();
  needs.words_ = (needs.column_chunks_ + 63) / 64;
  needs.bits_.assign(static_cast<std::size_t>(needs.batch_ * needs.row_chunks_ * needs.words_), 0);
  for (std::int64_t b = 0; b < needs.batch_; ++b) {
    for (std::int64_t i = 0; i < needs.row_chunks_; ++i) {
      std::uint64_t* const row = needs.bits_.data() + (b * needs.row_chunks_ + i) * needs.words_;
      for (const ChunkRun& run : runs.row(b, i)) {
        for (std::int64_t w = run.begin >> 6; w <= (run.end - 1) >> 6; ++w) {
          const std::int64_t from = std::max<std::int64_t>(run.begin - 64 * w, 0);
          const std::int64_t to = std::min<std::int64_t>(run.end - 64 * w, 64);
          row[w] |= (~std::uint64_t{0} >> (64 - (to - from))) << from;
        }
      }
    }
  }
  return needs;
}

}  // namespace flashmask
