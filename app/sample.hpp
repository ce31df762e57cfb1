// What the float64 oracle is asked for when everything would take minutes.
#pragma once

#include <cstdint>
#include <vector>

#include "flashmask/attention.hpp"

namespace flashmask::app {

/// Rows of query heads, and columns of KV heads.
struct Sample {
  struct Head {
    std::int64_t batch, head;
  };
  std::vector<Head> query_heads, kv_heads;
  std::vector<std::int64_t> rows, columns;
  bool everything = false;
};

/// Everything if the oracle can do that in about `budget` floating point operations. Else rows of two query heads and
/// columns of the first one's KV head, drawn by `seed`, with the first and last two among them where they are
/// affordable: the gradients of a column cost every row that sees it, which rules out the most seen ones of a long
/// mask.
Sample choose_sample(const AttentionShape& shape, const ColumnMask& mask, double budget, std::uint64_t seed);

}  // namespace flashmask::app
