// What the opaque handles of the C ABI hold.
#pragma once

#include <cstdint>

#include "flashmask/flashmask.h"
#include "flashmask/mask.hpp"
#include "flashmask/tile.hpp"

struct flashmask_mask {
  flashmask::ColumnMask value;
  std::uint64_t digest;  ///< of `value`, which never changes
};

struct flashmask_tile_map {
  flashmask::TileMap value;
  std::uint64_t mask_digest;  ///< of the mask it classifies
};
