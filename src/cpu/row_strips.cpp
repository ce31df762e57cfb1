#include "cpu/row_strips.hpp"

#include "core/parallel_for.hpp"

namespace flashmask::cpu {

void for_each_row_strip(const AttentionShape& shape, const TileMap& map, int threads,
                        const std::function<void(const RowStrip&, int worker)>& body) {
  const std::int64_t heads_per_mask = shape.query_heads / map.mask_shape().heads;
  const std::int64_t block = map.tile_shape().block_m;
  const std::int64_t strips = (std::min(block, shape.rows) + kStrip - 1) / kStrip;  // per row block
  const auto order = map.heaviest_first();
  const std::int64_t per_block = heads_per_mask * strips;
  core::parallel_for(static_cast<std::int64_t>(order.size()) * per_block, threads, [&](std::int64_t task, int worker) {
    const RowBlock& row_block = order[static_cast<std::size_t>(task / per_block)];
    RowStrip strip{};
    strip.batch = row_block.batch;
    strip.mask_head = row_block.head;
    strip.query_head = row_block.head * heads_per_mask + task % per_block / strips;
    strip.kv_head = strip.query_head / (shape.query_heads / shape.kv_heads);
    strip.begin = row_block.block * block + task % strips * kStrip;
    strip.end = std::min({strip.begin + kStrip, (row_block.block + 1) * block, shape.rows});
    if (strip.begin >= strip.end) return;
    strip.runs = map.row(row_block.batch, row_block.head, row_block.block);
    body(strip, worker);
  });
}

}  // namespace flashmask::cpu
