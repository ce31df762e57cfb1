// The CPU backend: exact attention over the tile map, float32 accumulation (docs/cpu.md). No validation here.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "flashmask/attention.hpp"

namespace flashmask::cpu {

/// Key columns [begin, end) of one batch row.
struct ColumnRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// What context parallelism adds to a call. Default-constructed: a plain call. Both functions may be called from
/// several threads at once; what they throw ends the call and is rethrown by it.
struct Hooks {
  /// Called before the keys and values of a range are first read (at most 64 columns, inside [0, column count)); may
  /// block. May be called again for a range, also concurrently; never for columns that no row sees.
  std::function<void(std::int64_t batch, std::int64_t begin, std::int64_t end)> wait;

  /// Per batch row the order in which keys are visited (forward, dQ) and finished (dK, dV): ranges that partition
  /// [0, columns). Empty, or an empty entry: ascending. Results depend on the order alone, bit by bit, never on threads
  /// or timing.
  std::vector<std::vector<ColumnRange>> order;

  /// Per batch row how many columns exist in k and v; what lies beyond is never read and must be hidden by the mask.
  /// Empty: all of shape.columns.
  std::vector<std::int64_t> column_counts;

  /// backward: dK and dV of these columns are final for every KV head of the batch row. The ranges of a batch row
  /// partition [0, columns) and start in `order`.
  std::function<void(std::int64_t batch, std::int64_t begin, std::int64_t end)> gradients_complete;
};

/// Like flashmask::forward without its checks; `out` may also be float32 when the inputs are not.
void forward(const ForwardArguments& arguments, const Hooks& hooks = {});
/// Like flashmask::backward without its checks; dq, dk and dv may also be float32 when the inputs are not.
void backward(const BackwardArguments& arguments, const Hooks& hooks = {});

}  // namespace flashmask::cpu
