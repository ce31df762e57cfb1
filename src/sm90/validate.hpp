// The parts of validation that other entries share with validate() of flashmask/sm90.hpp. None needs CUDA.
#pragma once

#include <cstdint>
#include <span>

#include "flashmask/attention.hpp"

namespace flashmask::sm90 {

/// Throws invalid_argument or unsupported if no kernel of this room takes the shape. What passes has extents, and work
/// items of 64 positions over batch x query heads, below 2^31: products of these stay far below 2^63.
void check_shape(const AttentionShape& shape);
/// Throws invalid_argument unless a mask of this shape serves calls of shape `calls`, which check_shape() has passed;
/// `what` is called "the mask" or "the tile map".
void check_mask_shape(const char* what, const MaskShape& mask, const AttentionShape& calls);
/// The tiles that some call of the backward takes.
std::span<const TileShape> all_backward_tiles();
/// Throws invalid_argument unless some forward or the backward takes maps of this tile, and with `calls` unless one of
/// these calls does.
void check_tile(TileShape tile);
void check_tile(TileShape tile, const AttentionShape& calls, std::int64_t mask_heads);
/// Throws invalid_argument unless `columns` is a width of chunks that kernels count in int32; `what` names it.
void check_chunk_columns(const char* what, std::int64_t columns);
/// Throws invalid_argument unless this can be the workspace of a forward or of a backward.
void check_forward_memory(const void* workspace);
void check_backward_memory(const void* workspace);

}  // namespace flashmask::sm90
