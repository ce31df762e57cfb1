// What a forward kernel is told; passed by value as a __grid_constant__.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90::forward_pass {

/// Device words that live from launch to launch, zero before the first one. The kernel leaves the counters at zero.
struct Workspace {
  std::uint32_t tickets;   ///< row tiles drawn beyond the first one of every CTA
  std::uint32_t finished;  ///< CTAs that have drawn their last ticket
  std::uint32_t error;     ///< WaitSite of the first wait that passed its bound
  std::uint32_t unused;
};

/// Where the loader learns that a chunk of K and V has arrived: words[chunk] >= epoch.
struct ChunkProgress {
  const std::uint64_t* words;
  std::uint64_t epoch;
  std::int32_t chunk_columns;
  std::uint32_t deadline_milliseconds;
  std::int32_t first_local, end_local;  ///< blocks that start at these units of the map are visited before all others
};

struct ForwardParameters {
  CUtensorMap q, k, v, out;
  TileMapView map;
  ChunkProgress progress;
  float* lse;
  Workspace* workspace;
  float scale;       ///< natural units: lse = scale * score
  float scale_log2;  ///< scale * log2(e)
  std::int32_t rows;
  // Query heads; those packed into one row tile count as one.
  std::int32_t query_heads;
  std::int32_t query_heads_per_kv_head;
  std::int32_t query_heads_per_mask_head;
  std::int32_t units;            ///< batch * query_heads
  std::int32_t units_a_section;  ///< heads whose row tiles are interleaved, so that their K and V stay in L2
  std::int32_t tickets;          ///< units * row tiles
  std::int32_t copies;           ///< TMA copies a tile: 1, or one a 64-wide half of a padded head_dim
};

}  // namespace flashmask::sm90::forward_pass
