// Which tile shapes the backward takes, and which of them a mask should take.
#include <array>

#include "flashmask/sm90.hpp"
#include "sm90/backward/config.hpp"
#include "sm90/backward/split.hpp"
#include "sm90/tile_map/count_blocks.hpp"
#include "sm90/validate.hpp"
#include "tile/row_tiling.hpp"

namespace flashmask::sm90 {
namespace {

using backward_pass::block_columns;
using backward_pass::block_rows;

/// The default, then the one of a pair of CTAs.
constexpr std::array tiles{TileShape{block_rows, block_columns}, TileShape{block_rows, 2 * block_columns}};

/// Whether groups of query heads are split over CTAs, which pairs do not do.
bool splits_groups(const AttentionShape& s) {
  const std::int64_t blocks = s.batch * s.kv_heads * tile::ceil_div(s.columns, block_columns);
  return backward_pass::parts_of(blocks, static_cast<std::int32_t>(s.query_heads / s.kv_heads)) > 1;
}

/// What a CTA of a pair takes beside a single one (docs/backward.md, "Pairs"): time for a row of a tile, in
/// thousandths, and for a block of 128 columns, in rows more.
struct PairCost {
  std::int64_t row_thousandths, block_rows_more;
};
PairCost pair_cost(std::int64_t head_dim) {
  return head_dim > 64 ? PairCost{925, 0} : PairCost{987, 42};
}

/// Rows that the CTAs of all blocks of `tile` visit.
std::int64_t visited_rows(const ColumnMask& mask, TileShape tile) {
  return count_row_blocks(mask.view(), tile).visited * tile.block_m * (tile.block_n / block_columns);
}

}  // namespace

std::span<const TileShape> all_backward_tiles() {
  return tiles;
}

std::span<const TileShape> backward_tiles(const AttentionShape& shape, bool deterministic) {
  check_shape(shape);
  const bool paired = !deterministic && !splits_groups(shape);
  return std::span(tiles).first(paired ? 2 : 1);
}

TileShape backward_tile() {
  return tiles.front();
}

TileShape choose_backward_tile(const ColumnMask& mask, const AttentionShape& shape, bool deterministic) {
  const std::span<const TileShape> choices = backward_tiles(shape, deterministic);
  check_mask_shape("the mask", mask.shape(), shape);
  if (choices.size() == 1) return choices.front();
  const PairCost cost = pair_cost(shape.head_dim);
  const std::int64_t blocks = mask.shape().batch * mask.shape().heads * tile::ceil_div(shape.columns, block_columns);
  const bool pair = visited_rows(mask, choices[1]) * cost.row_thousandths + 1000 * cost.block_rows_more * blocks <
                    visited_rows(mask, choices[0]) * 1000;
  return choices[pair ? 1 : 0];
}

}  // namespace flashmask::sm90
