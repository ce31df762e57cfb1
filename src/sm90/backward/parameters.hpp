// What the kernels of the backward take by value.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "sm90/backward/work_list.hpp"
#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90::backward_pass {

/// Strided tensor [batch][position][head][dim] of 16-bit elements in device memory; dim stride 1.
struct StridedTensor {
  std::uint16_t* data;
  std::int64_t batch_stride, position_stride, head_stride;  ///< elements

  [[nodiscard]] FLASHMASK_HOST_DEVICE std::uint16_t* at(std::int32_t b, std::int64_t position,
                                                        std::int32_t head) const {
    return data + b * batch_stride + position * position_stride + head * head_stride;
  }
};

/// Completion counters of column chunks, for whoever sends dK and dV on. `done` == nullptr: none.
struct ChunkSignal {
  std::uint32_t* done;
  std::int32_t chunk_columns;
};

/// What a row's statistics come from and what its sums become.
struct RowTensors {
  StridedTensor out, dout, dq;
  const float* lse;  ///< [batch][query_heads][rows], natural log
  float* stats;      ///< see stats_floats
  float* dq_sum;     ///< [batch * query_heads][row_tiles] tiles of 64 x head_dim in fragment order (dq_fragment.hpp);
                     ///< nullptr: dQ has no sums
};

/// float32 pairs (-LSE / scale, -rowsum(dO * O)), which S and dP start from: [batch * query_heads][row_tiles][2][64].
inline constexpr std::int32_t stats_floats = 2 * 64;

struct MainParameters {
  CUtensorMap q, k, v, dout;
  std::int32_t copies;  ///< tile copies a tile: 1, or one a 64-element half (Halves)
  Extents extents;
  ColumnLists lists;
  ChunkSignal signal;
  const int4* intervals;  ///< (LTS, LTE, UTS, UTE) of every column, [batch * mask_heads][column_blocks * 128]
  StridedTensor dk, dv;
  float scale;       ///< of the scores; dK takes it at the end
  float scale_log2;  ///< scale * log2(e)
  std::uint32_t* counter;
  std::uint32_t* error;
  const std::uint32_t* waiting;  ///< blocks of the order that wait, counted by prepare (waiting_blocks())
  std::uint32_t* front;  ///< of every (batch, KV head), where a CTA of the head is; nullptr: sweeps begin at the top
  float* part_sums;      ///< dV, then dK of every part, where groups are split; else nullptr
  std::int32_t parts;    ///< KV heads of `extents` to a real one: of split groups, a part is a KV head
  RowTensors rows;
};

/// What combine.cuh takes: see MainParameters.
struct CombineParameters {
  Extents extents;
  ColumnLists lists;
  ChunkSignal signal;
  const float* part_sums;
  std::int32_t parts;
  StridedTensor dk, dv;
  float scale;
};

}  // namespace flashmask::sm90::backward_pass
