// Before the main kernel: row statistics and a zeroed dQ workspace, column intervals, zeros for blocks nobody sees.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "sm90/backward/config.hpp"
#include "sm90/backward/parameters.hpp"

namespace flashmask::sm90::backward_pass {

struct PrepareParameters {
  Extents extents;
  TileMapView map;
  ChunkSignal signal;
  RowTensors rows;
  StridedTensor dk, dv;
  float scale;  ///< of the scores
  bool bf16;
  std::int32_t tile_head_dim;  ///< 64 or 128
  int4* intervals;
  std::uint32_t* counters;  ///< `counter_words` words: zeros, and how many blocks wait
  std::uint32_t* front;     ///< see MainParameters
  std::int32_t fronts;      ///< words of it
  ColumnLists lists;        ///< of the main kernel
};

inline constexpr std::int32_t counter_words = 4;
inline constexpr std::int32_t waiting_word = 2;  ///< of them (waiting_blocks())

using LaunchPrepare = cudaError_t(const PrepareParameters& parameters, cudaStream_t stream);
LaunchPrepare launch_prepare;

}  // namespace flashmask::sm90::backward_pass
