#include "sm90/backward/workspace.hpp"

#include "core/check.hpp"
#include "sm90/backward/config.hpp"
#include "sm90/backward/split.hpp"
#include "tile/row_tiling.hpp"

namespace flashmask::sm90::backward_pass {

using tile::ceil_div;

std::int32_t tile_head_dim(const AttentionShape& shape) {
  return shape.head_dim <= 64 ? 64 : 128;
}

std::int32_t parts_of_shape(const AttentionShape& s, std::int32_t wanted) {
  const auto group = static_cast<std::int32_t>(s.query_heads / s.kv_heads);
  if (wanted == 0) return parts_of(s.batch * s.kv_heads * ceil_div(s.columns, block_columns), group);
  core::check(group % wanted == 0, "parts ({}) must divide the {} query heads of a group", wanted, group);
  return wanted;
}

WorkspaceLayout workspace_layout(const AttentionShape& shape, std::int64_t mask_matrices, bool deterministic,
                                 std::int32_t parts) {
  const auto aligned = [](std::int64_t bytes) { return static_cast<std::size_t>(ceil_div(bytes, 256) * 256); };
  parts = parts_of_shape(shape, parts);
  const std::int64_t row_tiles = shape.batch * shape.query_heads * ceil_div(shape.rows, block_rows);
  const std::int64_t padded_columns = ceil_div(shape.columns, 2 * block_columns) * 2 * block_columns;
  const std::int64_t groups = shape.batch * shape.kv_heads * parts;
  WorkspaceLayout layout{};
  layout.counters = 0;
  layout.front = aligned(counter_bytes);
  layout.stats = layout.front + aligned(deterministic ? 0 : groups * 4);
  layout.intervals = layout.stats + aligned(row_tiles * stats_bytes);
  layout.dq_sum = layout.intervals + aligned(mask_matrices * padded_columns * 16);
  layout.part_sums = layout.dq_sum;
  if (!deterministic) layout.part_sums += aligned(row_tiles * block_rows * tile_head_dim(shape) * 4);
  layout.bytes = layout.part_sums;
  if (parts > 1) layout.bytes += aligned(2 * 4 * groups * padded_columns * tile_head_dim(shape));
  return layout;
}

}  // namespace flashmask::sm90::backward_pass
