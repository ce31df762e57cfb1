// What the forward kernels take; known without CUDA.
#pragma once

#include <cstdint>

#include "flashmask/attention.hpp"
#include "flashmask/tile.hpp"

namespace flashmask::sm90::forward_pass {

inline constexpr std::int64_t largest_head_dim = 128;
/// Device memory of a DeviceMask for bit patterns of partial blocks: they beat the mask generators wherever they fit;
/// what does not fit is generated.
inline constexpr std::int64_t bitmap_bytes = std::int64_t{128} << 20;
/// Query heads of a KV head whose rows share a packed row tile, and the mask rows of one: together 192 accumulator
/// rows.
inline constexpr std::int32_t heads_a_pack = 8;
inline constexpr std::int32_t packed_rows = 192 / heads_a_pack;

/// Whether rows of 8 query heads can share a row tile: they need one K and V, and one mask.
[[nodiscard]] constexpr bool can_pack(const AttentionShape& s, std::int64_t mask_heads) {
  return s.query_heads > 0 && s.kv_heads > 0 && mask_heads > 0 && s.query_heads % (s.kv_heads * heads_a_pack) == 0 &&
         s.query_heads % (mask_heads * heads_a_pack) == 0;
}

/// Query heads that share a row tile of this shape: a tile of 24 mask rows is a packed one.
[[nodiscard]] constexpr std::int32_t packed_heads_of(TileShape tile) {
  return tile.block_m == packed_rows ? heads_a_pack : 1;
}

}  // namespace flashmask::sm90::forward_pass
