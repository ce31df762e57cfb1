// How many blocks the row lists of a map would hold, counted without building it: what tiles are chosen by.
#pragma once

#include <cstdint>

#include "flashmask/mask.hpp"
#include "sm90/tile_map/rule.hpp"

namespace flashmask::sm90 {

/// Of all row lists: MapCounts::row_blocks_visited and MapCounts::partial_blocks.
struct RowBlocks {
  std::int64_t visited = 0, partial = 0;
};

/// What a map of this shape and form would hold. `mask` in host memory, any int32 values. Throws invalid_argument as
/// check_map_shape, and for the exact rule. Groups of columns that a row tile sees all or nothing of are counted at
/// once: milliseconds at 131072 square, unless most blocks are partial.
RowBlocks count_row_blocks(const MaskView& mask, TileShape shape, const MapForm& form = {});

}  // namespace flashmask::sm90
