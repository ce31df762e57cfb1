// What the kernels of the backward take by value.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90::backward_pass {

/// Extents of one call.
struct Extents {
  std::int32_t batch, rows, columns, query_heads, kv_heads, head_dim;
  std::int32_t mask_batch, mask_heads;    ///< mask_batch is batch, or 1: one mask for every batch row
  std::int32_t row_tiles, column_blocks;  ///< of 64 rows and 128 columns, rounded up

  /// Query heads that share one KV head.
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t group() const { return query_heads / kv_heads; }
  /// Flat list index of (batch, mask head of a query head, column block).
  [[nodiscard]] FLASHMASK_HOST_DEVICE constexpr std::int32_t list(std::int32_t b, std::int32_t query_head,
                                                                  std::int32_t block) const {
    const std::int32_t matrix = (mask_batch == 1 ? 0 : b * mask_heads) + query_head / (query_heads / mask_heads);
    return matrix * column_blocks + block;
  }
};

/// Strided tensor [batch][position][head][dim] of 16-bit elements in device memory; dim stride 1.
struct StridedTensor {
  std::uint16_t* data;
  std::int64_t batch_stride, position_stride, head_stride;  ///< elements

  [[nodiscard]] FLASHMASK_HOST_DEVICE std::uint16_t* at(std::int32_t b, std::int64_t position,
                                                        std::int32_t head) const {
    return data + b * batch_stride + position * position_stride + head * head_stride;
  }
};

/// The lists of row tiles of every column block and the order in which blocks are taken.
struct ColumnLists {
  const Run* runs;
  const std::int32_t* begin;
  const std::int32_t* count;
  /// Flat list indices (batch, mask head, block), the order of work; nullptr: ascending blocks. Ignored when there are
  /// more mask heads than KV heads, where one work block has a list a query head.
  const std::int32_t* order;
  /// Heads that share a list (of one mask head, and of all batch rows where there is one mask for all) and are worked
  /// on at a time, for the sake of the L2 cache.
  std::int32_t section_heads;
  std::int32_t phases;  ///< slices of the order that all heads go through one after another
};

/// Completion counters of column chunks, for whoever sends dK and dV on. `done` == nullptr: none.
struct ChunkSignal {
  std::uint32_t* done;
  std::int32_t chunk_columns;
};

/// float32 pairs (log-sum-exp in log2 units, rowsum(dO * O)): [batch * query_heads][row_tiles][2][64].
inline constexpr std::int32_t stats_floats = 2 * 64;

struct MainParameters {
  CUtensorMap q, k, v, dout;
  std::int32_t copies;  ///< tile copies a tile: 1, or one a 64-element half where head_dim % 64 != 0
  Extents extents;
  ColumnLists lists;
  ChunkSignal signal;
  const float* stats;
  const int4* intervals;  ///< (LTS, LTE, UTS, UTE) of every column, [batch * mask_heads][column_blocks * 128]
  float* dq_sum;  ///< [batch * query_heads][row_tiles] tiles of 64 x head_dim in fragment order (dq_fragment.hpp)
  StridedTensor dk, dv;
  float scale;       ///< of the scores; dK takes it at the end
  float scale_log2;  ///< scale * log2(e)
  std::uint32_t* counter;
  std::uint32_t* error;
};

}  // namespace flashmask::sm90::backward_pass
