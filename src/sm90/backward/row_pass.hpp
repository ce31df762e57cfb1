// What the row pass of the deterministic mode takes by value.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "sm90/backward/parameters.hpp"

namespace flashmask::sm90::backward_pass {

struct RowParameters {
  CUtensorMap q, k, v, dout;
  std::int32_t copies;
  Extents extents;
  const Run* runs;  ///< row lists of the map: column blocks of every row tile
  const std::int32_t *run_begin, *run_count;
  const std::int32_t* order;  ///< flat lists (batch, mask head, row tile), heaviest first
  const float* stats;
  const int4* intervals;
  StridedTensor dq;
  float scale, scale_log2;
  std::uint32_t* error;
};

}  // namespace flashmask::sm90::backward_pass
