// Row-stationary passes (forward and dQ): strips of at most kStrip query rows of one query head, heaviest first.
#pragma once

#include <cstdint>
#include <functional>

#include "cpu/walk.hpp"

namespace flashmask::cpu {

/// Query rows [begin, end) of one query head, and the runs of tiles they see.
struct RowStrip {
  std::int64_t batch, query_head, kv_head, mask_head;
  std::int64_t begin, end;
  std::span<const TileRun> runs;
};

/// Calls body(strip, worker) for every strip of every query head on `threads` threads.
void for_each_row_strip(const AttentionShape& shape, const TileMap& map, int threads,
                        const std::function<void(const RowStrip&, int worker)>& body);

/// Calls f(begin, end, tile class) for every piece of columns the strip sees, in the caller's order.
template <typename F>
void for_each_column_piece(const RowStrip& strip, const ColumnMask& mask, const TileMap& map, const Orders& orders,
                           const F& f) {
  const bool coarse = is_coarse(map);
  const auto visit = [&](std::int64_t begin, std::int64_t end, TileClass tile_class) {
    if (coarse && tile_class == TileClass::partial) {
      tile_class = piece_class(mask, strip.batch, strip.mask_head, {strip.begin, strip.end}, {begin, end});
    }
    if (tile_class != TileClass::masked) f(begin, end, tile_class);
  };
  const std::int64_t count = orders.column_count(strip.batch);
  for (const ColumnRange& range : orders.ranges(strip.batch)) {
    for_each_piece(strip.runs, map.tile_shape().block_n, range.begin, std::min(range.end, count), visit);
  }
}

/// The vectors of the columns from `begin` on.
inline Intervals intervals(const ColumnMask& mask, std::int64_t batch, std::int64_t head, std::int64_t begin) {
  const MaskView view = mask.view();
  const std::int64_t at = view.index(batch, head, begin);
  return {view.lts + at, view.lte + at, view.uts + at, view.ute + at};
}

}  // namespace flashmask::cpu
