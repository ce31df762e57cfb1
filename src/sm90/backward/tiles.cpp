// Which tile shapes the backward takes, and which of them a mask should take.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "flashmask/sm90.hpp"
#include "sm90/backward/config.hpp"
#include "sm90/backward/dealing.hpp"
#include "sm90/backward/work_list.hpp"
#include "sm90/tile_map/count_blocks.hpp"
#include "sm90/validate.hpp"
#include "tile/class_runs.hpp"
#include "tile/row_tiling.hpp"

namespace flashmask::sm90 {
namespace {

using backward_pass::block_columns;
using backward_pass::block_rows;

/// The default, then the one of a pair of CTAs.
constexpr std::array tiles{TileShape{block_rows, block_columns}, TileShape{block_rows, 2 * block_columns}};

/// Whether the column blocks that are seen are of unequal weight: a quarter of them much lighter than their mean.
bool has_unequal_blocks(const ColumnMask& mask) {
  const MaskShape& m = mask.shape();
  tile::ColumnBlockClassifier classifier(tile::RowTiling(m.rows, block_rows), TileRule::minmax);
  std::vector<std::int64_t> row_tiles;
  for (std::int64_t b = 0; b < m.batch; ++b) {
    for (std::int64_t head = 0; head < m.heads; ++head) {
      const tile::CanonicalColumns columns(mask, b, head);
      for (std::int64_t first = 0; first < m.columns; first += block_columns) {
        std::int64_t seen = 0;
        for (const TileRun& run : classifier.classify(columns, first, std::min(first + block_columns, m.columns))) {
          if (run.tile_class != TileClass::masked) seen += run.count;
        }
        if (seen > 0) row_tiles.push_back(seen);
      }
    }
  }
  if (row_tiles.empty()) return false;
  const std::int64_t mean = std::accumulate(row_tiles.begin(), row_tiles.end(), std::int64_t{0}) /
                            static_cast<std::int64_t>(row_tiles.size());
  const auto light = row_tiles.begin() + static_cast<std::ptrdiff_t>(row_tiles.size() / 4);
  std::nth_element(row_tiles.begin(), light, row_tiles.end());
  return backward_pass::much_lighter(*light, mean);
}

/// Rows that the CTAs of all blocks of `tile` visit.
std::int64_t visited_rows(const ColumnMask& mask, TileShape tile) {
  return count_row_blocks(mask.view(), tile).visited * tile.block_m * (tile.block_n / block_columns);
}

/// What a CTA of a pair takes beside a single one (docs/backward.md, "Pairs"): time for a row of a tile, in
/// thousandths, and for a block of 128 columns, in rows more.
struct PairCost {
  std::int64_t row_thousandths, block_rows_more;
};
constexpr PairCost pair_cost{925, 0}, narrow_pair_cost{987, 42};
/// Blocks of unequal weight drift apart in the sweep of a group of query heads, and single CTAs then wait for Q and dO
/// from DRAM, which pairs load half as often.
constexpr PairCost drifting_pair_cost{800, 0};

/// Whether blocks of unequal weight, if the mask has any, drift apart.
bool may_drift(const AttentionShape& s) {
  return s.head_dim > 64 && s.query_heads > s.kv_heads;
}

}  // namespace

std::span<const TileShape> all_backward_tiles() {
  return tiles;
}

std::span<const TileShape> backward_tiles(const AttentionShape& shape, bool deterministic) {
  check_shape(shape);
  return std::span(tiles).first(deterministic ? 1 : 2);
}

TileShape backward_tile() {
  return tiles.front();
}

TileShape choose_backward_tile(const ColumnMask& mask, const AttentionShape& shape, bool deterministic) {
  const std::span<const TileShape> choices = backward_tiles(shape, deterministic);
  check_mask_shape("the mask", mask.shape(), shape);
  if (choices.size() == 1 || shape.batch == 0) return choices.front();
  const std::int64_t blocks = mask.shape().batch * mask.shape().heads * tile::ceil_div(shape.columns, block_columns);
  const std::int64_t single_rows = visited_rows(mask, choices[0]), pair_rows = visited_rows(mask, choices[1]);
  const auto gains = [&](const PairCost& cost) {
    return pair_rows * cost.row_thousandths + 1000 * cost.block_rows_more * blocks < single_rows * 1000;
  };
  const bool pair = gains(shape.head_dim > 64 ? pair_cost : narrow_pair_cost) ||
                    (may_drift(shape) && gains(drifting_pair_cost) && has_unequal_blocks(mask));
  return choices[pair ? 1 : 0];
}

}  // namespace flashmask::sm90
