// Splitting the query heads of a group over CTAs, for calls with few column blocks: plain index arithmetic, the same on
// host and device.
//
// A part of a group is a KV head of its own to the main kernel (`split_extents`): it has its own dK and dV, as float32
// sums of the part, and only its K and V are the real head's. combine.cuh adds the parts in ascending order.
#pragma once

#include <cstdint>

#include "sm90/backward/config.hpp"
#include "sm90/backward/work_list.hpp"

namespace flashmask::sm90::backward_pass {

/// Work blocks below which groups are split, eight for each of 132 multiprocessors: the last wave then costs 1 / 16 on
/// average, and so do blocks of twice the mean weight that come first.
inline constexpr std::int64_t wanted_blocks = std::int64_t{8} * 132;

/// In how many parts groups of `group` query heads are best split where there are `blocks` work blocks: the smallest
/// divisor that gives as many as wanted, or all of the group.
inline std::int32_t parts_of(std::int64_t blocks, std::int32_t group) {
  std::int32_t parts = group;
  for (std::int32_t small = 1; small <= group / small; ++small) {
    if (group % small != 0) continue;
    for (const std::int32_t divisor : {small, group / small}) {
      if (divisor < parts && blocks * divisor >= wanted_blocks) parts = divisor;
    }
  }
  return parts;
}

/// The extents with a KV head a part.
constexpr Extents split_extents(Extents e, std::int32_t parts) {
  e.kv_heads *= parts;
  return e;
}

/// Key columns whose sums lie together: those of one column warpgroup.
inline constexpr std::int32_t piece_columns = 64;

/// Offset in floats, inside the sums of a piece, of accumulators 4 * `quad` ... 4 * `quad` + 3 of `thread`: every store
/// of a warp covers 512 contiguous bytes.
FLASHMASK_HOST_DEVICE constexpr std::int32_t part_fragment_offset(std::int32_t quad, std::int32_t thread) {
  return (quad * warpgroup_threads + thread) * 4;
}

/// Pieces of a head, whole work blocks of them.
FLASHMASK_HOST_DEVICE constexpr std::int32_t pieces_of_head(const Extents& e) {
  return e.column_blocks * (e.work_columns / piece_columns);
}

/// First float of the dV sums of the piece of a part that begins at `column`; `e` are the split extents. dK lies
/// `part_floats` further on.
FLASHMASK_HOST_DEVICE inline std::int64_t part_offset(const Extents& e, std::int32_t tile_head_dim, std::int32_t batch,
                                                      std::int32_t part_head, std::int32_t column) {
  const std::int64_t head = static_cast<std::int64_t>(batch) * e.kv_heads + part_head;
  return (head * pieces_of_head(e) + column / piece_columns) * piece_columns * tile_head_dim;
}

/// Floats of the dV sums of all parts, and of the dK sums.
FLASHMASK_HOST_DEVICE inline std::int64_t part_floats(const Extents& e, std::int32_t tile_head_dim) {
  return static_cast<std::int64_t>(e.batch) * e.kv_heads * pieces_of_head(e) * piece_columns * tile_head_dim;
}

}  // namespace flashmask::sm90::backward_pass
