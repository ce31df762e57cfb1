// Cutting the last blocks of a call by rows, so that the last wave of equal blocks does not leave most multiprocessors
// idle: plain index arithmetic, the same on host and device.
//
// The first `whole` items are whole blocks. Each later one is cut into `slices` items of equal numbers of tiles, whose
// dK and dV leave as float32 sums; combine.cuh adds them in ascending order.
#pragma once

#include <cstdint>

#include "sm90/backward/config.hpp"
#include "sm90/backward/sweep.hpp"
#include "sm90/backward/work_list.hpp"

namespace flashmask::sm90::backward_pass {

struct Tail {
  std::int32_t whole;
  std::int32_t slices;

  /// Items of a call with `blocks` work blocks.
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t items(std::int32_t blocks) const {
    return whole + (blocks - whole) * slices;
  }
  /// Part an item is, counting all slices; -1: a whole block.
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t part(std::int32_t item) const {
    return item < whole ? -1 : item - whole;
  }
  /// The block that a whole item or a slice belongs to, as an item of work_block().
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t block(std::int32_t item) const {
    return item < whole ? item : whole + (item - whole) / slices;
  }
};

/// Which of a block's tiles a slice has.
struct TileRange {
  std::int32_t first, count;
};
FLASHMASK_HOST_DEVICE constexpr TileRange slice_of(std::int32_t tiles, std::int32_t slice, std::int32_t slices) {
  const std::int32_t each = tiles / slices;
  const std::int32_t more = tiles % slices;  // slices with a tile more, the first ones
  return {each * slice + (slice < more ? slice : more), each + (slice < more ? 1 : 0)};
}

/// How the last blocks are best cut, if blocks are equal: fewest waves of slices, each slice costing 0.2% of a block
/// for its sums and its start.
inline Tail best_tail(std::int32_t blocks, std::int32_t processors) {
  constexpr std::int32_t most_slices = 32;
  constexpr double cost_of_slice = 0.002;
  const std::int32_t left = blocks % processors;
  Tail best{blocks, 1};
  double best_cost = 1;  // blocks' time after the last full wave
  for (std::int32_t slices = 2; left > 0 && slices <= most_slices; ++slices) {
    const std::int32_t waves = (left * slices + processors - 1) / processors;
    const double cost = static_cast<double>(waves) / slices + cost_of_slice * slices;
    if (cost < best_cost) best = {blocks - left, slices}, best_cost = cost;
  }
  return best;
}

/// Where tile number `index` of a work block is, as sweep() takes it: head * row_tiles + tile.
FLASHMASK_HOST_DEVICE inline std::uint32_t tile_position(const Extents& e, const ColumnLists& lists, const WorkBlock& w,
                                                         std::int32_t index) {
  for (std::int32_t head = 0; head < e.group(); ++head) {
    const std::int32_t list = e.list(w.batch, w.kv_head * e.group() + head, w.block);
    const Run* const runs = lists.runs + lists.begin[list];
    for (std::int32_t n = 0; n < lists.count[list]; ++n) {
      if (index < runs[n].count) return static_cast<std::uint32_t>(head * e.row_tiles + runs[n].first + index);
      index -= runs[n].count;
    }
  }
  return 0;
}

/// First float of the sums of one half (64 columns) of a part; dK's lie `2 * 64 * tile_head_dim` after dV's.
FLASHMASK_HOST_DEVICE constexpr std::int64_t tail_offset(std::int32_t part, std::int32_t half,
                                                         std::int32_t tile_head_dim) {
  return (static_cast<std::int64_t>(part) * 4 + half) * 64 * tile_head_dim;
}
/// Floats of all sums.
constexpr std::int64_t tail_floats(const Tail& tail, std::int32_t blocks, std::int32_t tile_head_dim) {
  return tail_offset(tail.items(blocks) - tail.whole, 0, tile_head_dim);
}

}  // namespace flashmask::sm90::backward_pass
