// Candidates of the forward kernel that are measured against it and are not part of the library: forms of the tile map
// with a kernel for each, and the kernel in which every lane arrives for itself (for racecheck).
#pragma once

#include <span>
#include <string_view>

#include "flashmask/sm90.hpp"
#include "sm90/forward/config.hpp"
#include "sm90/forward/launch.hpp"
#include "sm90/tile_map/rule.hpp"

namespace flashmask::sm90::forward_pass {

struct Candidate {
  std::string_view name;
  ForwardConfig config;
  TileRule rule;  ///< of its map
  Launch* kernel;

  [[nodiscard]] MapForm form() const { return {config.packed_heads, config.column_units, rule}; }
  /// Whether it can run this call at all: packed heads share a KV head and a mask head, head_dim is 65 to 128.
  [[nodiscard]] bool takes(const AttentionShape& shape, std::int64_t mask_heads) const;
};

/// All of bf16.
std::span<const Candidate> candidates();
/// Throws invalid_argument with the list of names.
const Candidate& candidate_named(std::string_view name);

/// forward() by a candidate; the map is of its tile and form.
void forward(const Candidate& candidate, const ForwardArguments& arguments);

}  // namespace flashmask::sm90::forward_pass
