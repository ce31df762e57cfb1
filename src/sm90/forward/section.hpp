// Sections: heads whose row tiles are drawn before those of the next ones begin, so that their K and V stay in L2.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flashmask/attention.hpp"
#include "flashmask/mask.hpp"

namespace flashmask::sm90::forward_pass {

/// K and V of the heads of a section should stay near L2's size: 16 heads instead of 4 at 32768 lost 6%, 64 instead of
/// 16 at 8192 3%.
inline constexpr std::int64_t section_bytes = std::int64_t{64} << 20;

/// KV heads of one batch row whose K and V make a section, at least 1.
[[nodiscard]] constexpr std::int64_t kv_heads_a_section(const AttentionShape& s) {
  return std::max<std::int64_t>(section_bytes / std::max<std::int64_t>(s.columns * s.head_dim * 4, 1), 1);
}

/// Units (query heads, or packs of them, over all batch rows) of a section of a mask that all heads share.
[[nodiscard]] constexpr std::int32_t units_a_section(const AttentionShape& s, std::int64_t packed_heads) {
  const std::int64_t heads = std::min(kv_heads_a_section(s) * (s.query_heads / s.kv_heads), s.batch * s.query_heads);
  return static_cast<std::int32_t>(heads / packed_heads);
}

/// Matrices (mask batch x mask heads) of a section, for DeviceTileMap::Options::section; at least 1. A matrix of a mask
/// of one batch row serves its heads in every batch row.
[[nodiscard]] constexpr std::int32_t matrices_a_section(const AttentionShape& s, const MaskShape& mask) {
  const std::int64_t batch_rows = mask.batch == 1 ? s.batch : 1;
  constexpr std::int64_t most = std::int64_t{1} << 30;  // more than a map holds
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(
      kv_heads_a_section(s) * mask.heads / std::max<std::int64_t>(s.kv_heads * batch_rows, 1), 1, most));
}

}  // namespace flashmask::sm90::forward_pass
