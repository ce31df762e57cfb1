// How the blocks of a call are dealt out where the caller does not say: plain host arithmetic (see ColumnLists and
// work_block()).
#pragma once

#include <algorithm>
#include <cstdint>

#include "sm90/backward/work_list.hpp"

namespace flashmask::sm90::backward_pass {

/// Bytes of Q, dO and float32 dQ of a row of one head.
constexpr std::int64_t bytes_a_row(std::int32_t head_dim) {
  return std::int64_t{8} * head_dim;
}

/// Whether what a group of `group` query heads sweeps over is more than the L2 cache keeps. `head_dim` of the tiles.
constexpr bool sweep_exceeds_cache(std::int64_t rows, std::int64_t group, std::int32_t head_dim) {
  constexpr std::int64_t cache_bytes = std::int64_t{50} << 20;
  return rows * group * bytes_a_row(head_dim) > cache_bytes;
}

/// Heads that share a list, where blocks have an order: KV heads of a mask head and, where all batch rows have one
/// mask, those of each. No section has more.
constexpr std::int32_t sharing_heads(const Extents& e) {
  const std::int64_t matrices = std::max<std::int64_t>(1, std::int64_t{e.mask_batch} * e.mask_heads);
  return static_cast<std::int32_t>(std::max<std::int64_t>(1, std::int64_t{e.batch} * e.kv_heads / matrices));
}

/// How work_block() deals out the column blocks.
struct Dealing {
  std::int32_t section_heads, light_percent;
};

/// A caller's order is kept over all heads.
constexpr Dealing given_dealing(const Extents& e) {
  return {sharing_heads(e), 0};
}

/// By the blocks there are a multiprocessor. Many: sections of few heads, whose Q, dO and float32 dQ the L2 cache keeps
/// (four rather than two: share_question 5% faster), and a quarter of the blocks, if lighter, after the others (causal
/// 2% faster than with half of them). Fewer, as with split groups: larger sections and a third of the blocks, as a
/// heavy block weighs more in the end (64:8 at 8192: full 8%, causal 5%, causal_document 11% faster than heaviest first
/// over all heads). Few: that is what is done, as the last heavy block decides. A call without rows has blocks too:
/// their dK and dV are cleared.
constexpr Dealing default_dealing(const Extents& e, std::int32_t workers) {
  constexpr std::int64_t section_bytes = std::int64_t{64} << 20;
  const std::int64_t blocks = std::int64_t{e.batch} * e.kv_heads * e.column_blocks;
  const std::int32_t sharing = sharing_heads(e);
  if (blocks < std::int64_t{12} * workers) return {sharing, 0};
  if (blocks < std::int64_t{16} * workers) return {std::min(8, sharing), 35};
  const std::int64_t bytes_a_head =
      std::max<std::int64_t>(1, std::int64_t{e.rows} * e.group() * bytes_a_row(e.head_dim));
  const std::int64_t kept = std::clamp<std::int64_t>(section_bytes / bytes_a_head, 1, std::min(4, sharing));
  return {static_cast<std::int32_t>(kept), 25};
}

}  // namespace flashmask::sm90::backward_pass
