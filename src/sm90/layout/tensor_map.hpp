// Tensor maps (TMA descriptors) of strided [batch][position][head][dim] tensors, encoded on the host.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "flashmask/attention.hpp"

namespace flashmask::sm90::layout {

/// Which part of a tensor one copy moves: `rows` positions of one head of one batch row.
///
/// Coordinates of the 5-D map, innermost first: dim, position, half, head, batch. A head_dim that is a multiple of 64
/// moves in one copy, all halves of the tile ([half][row][64]). Any other head_dim needs one copy a half, at dim
/// coordinate 64 * half, and what lies beyond head_dim is zero-filled on load and clipped on store.
struct TileCopy {
  CUtensorMap map;
  std::int32_t copies;  ///< copies a tile
};

/// Halves::apart: a copy a half whatever head_dim is, for whoever loads one half alone.
enum class Halves { together, apart };

/// Throws unsupported if the tensor breaks TMA's rules: dim stride 1, 16-byte aligned data and strides; device if the
/// driver refuses. `name` is the argument's name in the text.
TileCopy encode_tile_copy(const char* name, TensorView tensor, std::int64_t batch, std::int64_t positions,
                          std::int64_t heads, std::int64_t head_dim, std::uint32_t rows,
                          Halves halves = Halves::together);

/// As above, but a copy moves `packed_heads` heads of `rows` positions, heads innermost: row r of the tile is head
/// r % packed_heads of position r / packed_heads. Coordinates: dim, head, position, half, batch.
TileCopy encode_packed_copy(const char* name, TensorView tensor, std::int64_t batch, std::int64_t positions,
                            std::int64_t heads, std::int64_t head_dim, std::uint32_t rows, std::uint32_t packed_heads);

/// Plain 2-D map of a row-major float32 or 16-bit matrix without swizzle; for tests and helper kernels.
CUtensorMap encode_matrix(const char* name, const void* data, DType dtype, std::int64_t rows, std::int64_t columns,
                          std::uint32_t box_rows, std::uint32_t box_columns);

}  // namespace flashmask::sm90::layout
