// What the opaque handles of the C ABI hold.
#pragma once

#include "flashmask/flashmask.h"
#include "flashmask/mask.hpp"
#include "flashmask/tile.hpp"

struct flashmask_mask {
  flashmask::ColumnMask value;
};

struct flashmask_tile_map {
  flashmask::TileMap value;
};
