// Which tile shapes there are, and which of them a mask should take: exact tile counts times measured tile costs.
#include "core/check.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/forward/limits.hpp"

namespace flashmask::sm90 {
namespace {

/// Time of a tile per key column, in thousandths of that of a 192 x 80 tile (docs/forward.md, "Tile width"): a narrow
/// block reads Q from shared memory more often, a wide one computes more hidden cells.
std::int64_t cost_a_column(TileShape tile) {
  return tile.block_n == 64 ? 1025 : 1000;
}

std::int64_t cost_of(const ColumnMask& mask, TileShape tile) {
  const TileCounts counts = TileMap::build(mask, tile).counts();
  return (counts.partial + counts.unmasked) * tile.block_n * cost_a_column(tile);
}

}  // namespace

std::span<const TileShape> forward_tiles(std::int64_t head_dim) {
  static constexpr TileShape narrow_heads[] = {{192, 128}};
  static constexpr TileShape wide_heads[] = {{192, 80}, {192, 64}};
  core::check(head_dim >= 1 && head_dim <= forward_pass::largest_head_dim,
              "head_dim must be from 1 to {} on sm90, got {}", forward_pass::largest_head_dim, head_dim);
  if (head_dim <= 64) return narrow_heads;
  return wide_heads;
}

TileShape forward_tile(std::int64_t head_dim) {
  return forward_tiles(head_dim).front();
}

TileShape choose_forward_tile(const ColumnMask& mask, std::int64_t head_dim) {
  const std::span<const TileShape> tiles = forward_tiles(head_dim);
  TileShape best = tiles.front();
  if (tiles.size() == 1) return best;
  std::int64_t lowest = cost_of(mask, best);
  for (const TileShape tile : tiles.subspan(1)) {
    const std::int64_t cost = cost_of(mask, tile);
    if (cost < lowest) lowest = cost, best = tile;
  }
  return best;
}

}  // namespace flashmask::sm90
