// How the builder's kernels go along a list: 32 blocks at a time, a lane each, whole groups at once where they can be.
#pragma once

#include <cstdint>

#include "sm90/tile_map/build.hpp"

namespace flashmask::sm90::tile_map {

constexpr int warp_size = 32;
constexpr std::uint32_t mixed = 0xffffffffU;  ///< not a class word
/// Lists shorter than this do not ask their groups: at 8192 columns asking costs 2.5 us more than it saves.
constexpr std::int32_t least_grouped = 8 * warp_size;

/// The grid, with what a plain map has as constants: its lists then cost nothing for the forms that it is not.
template <bool Plain>
__device__ __forceinline__ TileGrid grid_of(const BuildArrays& a) {
  TileGrid grid = a.grid;
  if constexpr (Plain) grid.packed_shift = 0, grid.column_units = 1, grid.rule = TileRule::minmax;
  return grid;
}

/// Class words of one list, 32 blocks at a time.
struct ListWalk {
  bool is_row;
  std::int32_t matrix, fixed, length, number;  ///< number: among the lists of its kind
  std::int32_t step;                           ///< between neighbouring blocks of the list
  const BlockBounds* bounds;                   ///< of the matrix's units
  const BlockBounds* group_bounds;             ///< of its groups of 32 units
  const std::int32_t *lts, *lte, *uts, *ute;   ///< its canonical vectors

  __device__ ListWalk(const BuildArrays& a, const TileGrid& grid, std::int32_t list) {
    is_row = list < a.row_lists();
    number = is_row ? list : list - a.row_lists();
    const std::int32_t fixed_extent = is_row ? grid.row_tiles : grid.column_blocks;
    length = is_row ? grid.units() : grid.row_tiles;
    step = is_row ? grid.column_units : 1;
    matrix = number / fixed_extent;
    fixed = number % fixed_extent;
    bounds = a.bounds + std::int64_t{matrix} * grid.padded_units();
    group_bounds = a.group_bounds + std::int64_t{matrix} * a.unit_groups();
    const std::int64_t first = std::int64_t{matrix} * grid.padded_columns;
    lts = a.lts + first, lte = a.lte + first, uts = a.uts + first, ute = a.ute + first;
  }
  __device__ HiddenRows column(std::int32_t c) const { return {lts[c], lte[c], uts[c], ute[c]}; }
  __device__ std::uint32_t word(const TileGrid& grid, std::int32_t i) const {
    if (i >= length) return 0;
    const std::int32_t row_tile = is_row ? fixed : i;
    const std::int32_t start = is_row ? i : fixed * grid.column_units;
    return block_word(
        grid, row_tile, start, [this](std::int32_t u) { return bounds[u]; },
        [this](std::int32_t c) { return column(c); });
  }
  /// For row lists: whether the row tile sees anything of unit u alone.
  __device__ bool sees(const TileGrid& grid, std::int32_t u) const {
    return u < length && sees_unit(
                             grid, fixed, u, [this](std::int32_t v) { return bounds[v]; },
                             [this](std::int32_t c) { return column(c); });
  }

  /// The class word of all 32 blocks from `start`, or `mixed` if they may differ or one is partial. What the min/max
  /// rule says masked or unmasked of a group it says of every block of it, so nothing is lost by asking the group
  /// first.
  __device__ std::uint32_t group_word(const TileGrid& grid, std::int32_t start) const {
    if (start > length - warp_size) return mixed;
    if (is_row) {
      const std::uint32_t word =
          minmax_word(grid, group_bounds[start / warp_size], fixed, start * grid.block_n, warp_size * grid.block_n);
      return has_partial(word) ? mixed : word;
    }
    const std::int32_t r0 = start * grid.block_m, r1 = r0 + warp_size * grid.block_m;
    if (r1 > grid.rows) return mixed;
    const auto of_unit = [this](std::int32_t u) { return bounds[u]; };
    switch (classify(block_bounds(grid, fixed * grid.column_units, of_unit), r0, r1)) {
      case TileClass::masked:
        return 0;
      case TileClass::unmasked:
        return word(grid, start) == all_unmasked(grid) ? all_unmasked(grid) : mixed;
      default:
        return mixed;
    }
  }

  __device__ static std::uint32_t all_unmasked(const TileGrid& grid) {
    return 0xaaaaaaaaU & ((1U << (2 * grid.subtiles())) - 1U);
  }
};

/// walk_list for a row list whose blocks may start at any unit: 32 blocks without a gap at once, then the next unit
/// that the row tile sees.
template <typename Group>
__device__ __forceinline__ void walk_cover(const TileGrid& grid, const ListWalk& walk, Group&& group) {
  constexpr unsigned all = 0xffffffffU;
  const std::int32_t lane = threadIdx.x % warp_size;
  std::uint32_t carry = 0;
  // 32 visible blocks may end up to a block beyond the last unit, and the run they leave open still has to be closed.
  for (std::int32_t start = 0; start < walk.length + walk.step;) {
    const std::int32_t i = start + lane * walk.step;
    const unsigned seen = __ballot_sync(all, walk.sees(grid, i));
    const std::int32_t blocks = seen == all ? warp_size : __ffs(static_cast<int>(~seen)) - 1;
    const std::uint32_t word = lane < blocks ? walk.word(grid, i) : 0;
    const std::uint32_t shifted = __shfl_up_sync(all, word, 1);
    group(start, word, lane == 0 ? carry : shifted);
    carry = __shfl_sync(all, word, warp_size - 1);
    start += blocks * walk.step;
    if (blocks == warp_size) continue;
    unsigned visible = 0;
    for (++start; start < walk.length; start += warp_size) {
      visible = __ballot_sync(all, walk.sees(grid, start + lane));
      if (visible != 0) break;
    }
    if (visible == 0) return;
    start += __ffs(static_cast<int>(visible)) - 1;
  }
}

/// Calls group(start, word, before) for every 32 blocks of a list and once past its end; `word` is the class word of
/// this lane's block, the one `lane * step` after `start`, `before` that of the block before it. Where all 32 continue
/// the block before them, same(start, word) is called instead.
template <typename Group, typename Same>
__device__ __forceinline__ void walk_list(const TileGrid& grid, const ListWalk& walk, Group&& group, Same&& same) {
  if (walk.step > 1) return walk_cover(grid, walk, group);
  constexpr unsigned all = 0xffffffffU;
  const std::int32_t lane = threadIdx.x % warp_size;
  std::uint32_t carry = 0;  // class word of the block before this group
  for (std::int32_t base = 0; base <= walk.length; base += warp_size * warp_size) {
    const std::uint32_t words = walk.length < least_grouped ? mixed : walk.group_word(grid, base + lane * warp_size);
    for (std::int32_t g = 0; g < warp_size; ++g) {
      const std::int32_t start = base + g * warp_size;
      if (start > walk.length) return;
      const std::uint32_t uniform = __shfl_sync(all, words, g);
      if (uniform != mixed && uniform == carry) {
        same(start, uniform);
        continue;
      }
      const std::uint32_t word = uniform != mixed ? uniform : walk.word(grid, start + lane);
      const std::uint32_t shifted = __shfl_up_sync(all, word, 1);
      group(start, word, lane == 0 ? carry : shifted);
      carry = __shfl_sync(all, word, warp_size - 1);
    }
  }
}

}  // namespace flashmask::sm90::tile_map
