// Which tile shapes there are, and which of them a mask should take: exact block counts times measured block costs.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>

#include "core/check.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/forward/limits.hpp"
#include "sm90/tile_map/count_blocks.hpp"
#include "sm90/tile_map/host_map.hpp"
#include "sm90/validate.hpp"

namespace flashmask::sm90 {
namespace {

using forward_pass::packed_heads_of;
using forward_pass::packed_rows;

/// Plain tiles of calls with head_dim up to 64 and above, the default first, then the packed one.
constexpr std::array narrow_heads{TileShape{192, 128}, TileShape{packed_rows, 128}};
constexpr std::array wide_heads{TileShape{192, 80}, TileShape{192, 64}, TileShape{packed_rows, 80}};

std::span<const TileShape> all_tiles(std::int64_t head_dim) {
  core::check(head_dim >= 1 && head_dim <= forward_pass::largest_head_dim,
              "head_dim must be from 1 to {} on sm90, got {}", forward_pass::largest_head_dim, head_dim);
  if (head_dim <= 64) return narrow_heads;
  return wide_heads;
}

/// Time of a block per key column, in thousandths of that of a 192 x 80 one (docs/forward.md, "Tile width"): a narrow
/// block reads Q from shared memory more often, a packed tile's Q and O stand farther apart in global memory.
std::int64_t cost_a_column(TileShape tile) {
  if (packed_heads_of(tile) > 1) return 1018;
  return tile.block_n == 64 ? 1030 : 1000;
}

/// What a partial block without a bit pattern costs more, in thousandths: the mask generators are slower than the
/// consumers (random_eviction at 8192: 495 TFLOP/s without any pattern, 716 with all).
constexpr std::int64_t generated_surcharge = 446;

/// Of a head.
std::int64_t cost_of(const ColumnMask& mask, TileShape tile) {
  const MapForm form{.packed_heads = packed_heads_of(tile)};
  const RowBlocks blocks = count_row_blocks(mask.view(), tile, form);
  const std::int64_t bitmaps = default_capacity(mask.shape(), tile, forward_pass::bitmap_bytes, form).bitmaps;
  const std::int64_t generated = std::max<std::int64_t>(blocks.partial - bitmaps, 0);
  return (blocks.visited + generated * generated_surcharge / 1000) * tile.block_n * cost_a_column(tile) /
         form.packed_heads;
}

TileShape cheapest(const ColumnMask& mask, std::span<const TileShape> tiles) {
  TileShape best = tiles.front();
  if (tiles.size() == 1) return best;
  std::int64_t lowest = cost_of(mask, best);
  for (const TileShape tile : tiles.subspan(1)) {
    const std::int64_t cost = cost_of(mask, tile);
    if (cost < lowest) lowest = cost, best = tile;
  }
  return best;
}

/// Throws, listing what there is, unless the tile is in one of these lists.
void check_listed(TileShape tile, std::initializer_list<std::span<const TileShape>> forward,
                  std::span<const TileShape> backward, const char* who) {
  std::string names;
  bool found = false;
  const auto look = [&](std::span<const TileShape> tiles) {
    for (const TileShape t : tiles) {
      found |= t == tile;
      names += core::format("{}{}x{}", names.empty() || names.ends_with(" ") ? "" : ", ", t.block_m, t.block_n);
    }
  };
  for (const std::span<const TileShape> tiles : forward) look(tiles);
  names += " (forward) or ";
  look(backward);
  if (found) return;
  core::fail(ErrorCode::invalid_argument, "{} a map of {}x{} tiles; expected one of {} (backward)", who, tile.block_m,
             tile.block_n, names);
}

}  // namespace

std::span<const TileShape> forward_tiles(std::int64_t head_dim) {
  const std::span<const TileShape> tiles = all_tiles(head_dim);
  return tiles.first(tiles.size() - 1);
}

std::span<const TileShape> forward_tiles(const AttentionShape& shape, std::int64_t mask_heads) {
  check_shape(shape);
  check_mask_shape("the mask", {1, mask_heads, shape.rows, shape.columns}, shape);
  return forward_pass::can_pack(shape, mask_heads) ? all_tiles(shape.head_dim) : forward_tiles(shape.head_dim);
}

void check_tile(TileShape tile) {
  check_listed(tile, {narrow_heads, wide_heads}, all_backward_tiles(), "no kernel takes");
}

void check_tile(TileShape tile, const AttentionShape& calls, std::int64_t mask_heads) {
  check_listed(tile, {forward_tiles(calls, mask_heads)}, backward_tiles(calls), "no kernel of these calls takes");
}

TileShape forward_tile(std::int64_t head_dim) {
  return forward_tiles(head_dim).front();
}

TileShape choose_forward_tile(const ColumnMask& mask, const AttentionShape& shape) {
  check_shape(shape);
  check_mask_shape("the mask", mask.shape(), shape);
  return cheapest(mask, forward_tiles(shape, mask.shape().heads));
}

TileShape choose_forward_tile(const ColumnMask& mask, std::int64_t head_dim) {
  return cheapest(mask, forward_tiles(head_dim));
}

}  // namespace flashmask::sm90
