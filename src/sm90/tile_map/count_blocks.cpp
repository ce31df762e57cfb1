#include "sm90/tile_map/count_blocks.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "core/check.hpp"
#include "sm90/tile_map/host_map.hpp"

namespace flashmask::sm90 {
namespace {

/// Bounds of units, of groups of 32 units and of groups of 1024, of one matrix.
class BoundsPyramid {
 public:
  static constexpr std::int32_t levels = 3, shift = 5;

  BoundsPyramid(const TileGrid& grid, const MaskView& mask, std::int64_t first_column) : grid_(grid) {
    for (std::int32_t level = 0; level < levels; ++level) {
      bounds_[level].assign((grid.padded_units() >> (shift * level)) + 1, BlockBounds::none());
    }
    for (std::int32_t j = 0; j < grid.columns; ++j) {
      bounds_[0][j / grid.unit()].include(canonical(mask.at(first_column + j), grid.rows));
    }
    for (std::int32_t level = 1; level < levels; ++level) {
      for (std::size_t i = 0; i < bounds_[level - 1].size(); ++i)
        bounds_[level][i >> shift].include(bounds_[level - 1][i]);
    }
  }

  /// Class word of the 32 (or 1024) units of a group. Unless a subtile is partial in it, it is that of every block
  /// inside: the group's extrema hold for each of them. (A group that columns do not fill is never unmasked.)
  [[nodiscard]] std::uint32_t group_word(std::int32_t row_tile, std::int32_t level, std::int32_t index) const {
    const std::int32_t width = grid_.unit() << (shift * level), first = index * width;
    return minmax_word(grid_, bounds_[level][index], row_tile, first, std::min(width, grid_.padded_columns - first));
  }
  /// Class word of the block that starts at a unit; 0 also if the row tile sees nothing of that unit.
  [[nodiscard]] std::uint32_t word_at(std::int32_t row_tile, std::int32_t unit) const {
    const auto bounds = [this](std::int32_t u) { return bounds_[0][u]; };
    const auto column = [](std::int32_t) { return HiddenRows{}; };  // the minmax rule asks for none
    if (grid_.column_units > 1 && !sees_unit(grid_, row_tile, unit, bounds, column)) return 0;
    return block_word(grid_, row_tile, unit, bounds, column);
  }

 private:
  TileGrid grid_;
  std::array<std::vector<BlockBounds>, levels> bounds_;
};

/// Adds the blocks of one row list.
class ListCounter {
 public:
  ListCounter(const TileGrid& grid, const BoundsPyramid& pyramid, std::int32_t row_tile)
      : grid_(grid), pyramid_(pyramid), row_tile_(row_tile) {
    asked_.fill(-1);
  }

  void add_to(RowBlocks& blocks) {
    for (std::int32_t unit = 0; unit < grid_.units();) {
      std::int32_t next = unit;
      for (std::int32_t level = BoundsPyramid::levels - 1; level > 0 && next == unit; --level) {
        next = skip_group(level, unit, blocks);
      }
      unit = next == unit ? step(unit, blocks) : next;
    }
  }

 private:
  /// Past what is alike in the group that holds `unit`, or `unit`.
  std::int32_t skip_group(std::int32_t level, std::int32_t unit, RowBlocks& blocks) {
    const std::int32_t group = unit >> (BoundsPyramid::shift * level);
    if (asked_[level] != group) {
      asked_[level] = group, words_[level] = pyramid_.group_word(row_tile_, level, group);
    }
    const std::uint32_t word = words_[level];
    const std::int32_t end = std::min((group + 1) << (BoundsPyramid::shift * level), grid_.units());
    if (word == 0) return end;
    if (has_partial(word)) return unit;
    const std::int32_t whole = (end - unit) / grid_.column_units;
    blocks.visited += whole;
    return unit + whole * grid_.column_units;
  }
  std::int32_t step(std::int32_t unit, RowBlocks& blocks) const {
    const std::uint32_t word = pyramid_.word_at(row_tile_, unit);
    if (word == 0) return unit + 1;
    ++blocks.visited;
    blocks.partial += has_partial(word) ? 1 : 0;
    return unit + grid_.column_units;
  }

  const TileGrid& grid_;
  const BoundsPyramid& pyramid_;
  std::int32_t row_tile_;
  std::array<std::int32_t, BoundsPyramid::levels> asked_{};  // the group whose word is known
  std::array<std::uint32_t, BoundsPyramid::levels> words_{};
};

}  // namespace

RowBlocks count_row_blocks(const MaskView& mask, TileShape shape, const MapForm& form) {
  check_map_shape(mask.shape, shape, form);
  core::check(form.rule == TileRule::minmax, "blocks are counted by the minmax rule alone, got the exact one");
  const TileGrid grid =
      tile_grid(static_cast<std::int32_t>(mask.shape.rows), static_cast<std::int32_t>(mask.shape.columns), shape, form);
  RowBlocks blocks;
  for (std::int64_t matrix = 0; matrix < mask.shape.batch * mask.shape.heads; ++matrix) {
    const BoundsPyramid pyramid(grid, mask, matrix * mask.shape.columns);
    for (std::int32_t tile = 0; tile < grid.row_tiles; ++tile) ListCounter(grid, pyramid, tile).add_to(blocks);
  }
  return blocks;
}

}  // namespace flashmask::sm90
