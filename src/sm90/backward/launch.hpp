// Backward on device memory: describe, size the workspace, queue. The public function in flashmask/sm90.hpp validates
// and calls this.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "flashmask/attention.hpp"
#include "sm90/backward/instances.hpp"
#include "sm90/backward/parameters.hpp"
#include "sm90/backward/workspace.hpp"

namespace flashmask::sm90::backward_pass {

/// One call; every pointer is device memory. The tile map has one of all_backward_tiles(); its batch is 1 or that of
/// the call.
struct BackwardCall {
  AttentionShape shape;
  TileMapView map{};
  TensorView q, k, v, out, dout;
  const float* lse = nullptr;
  MutableTensorView dq, dk, dv;
  float scale = 0;
  bool deterministic = false;
  /// Order of column blocks (flat list indices of the map); nullptr: the map's own, heaviest first.
  const std::int32_t* order = nullptr;
  ChunkSignal signal{};
  std::int32_t section_heads = 0;   ///< see ColumnLists; 0: the default
  std::int32_t light_percent = -1;  ///< of the blocks, the lightest, that may wait (ColumnLists); -1: the default
  std::int32_t shared_front = 0;    ///< 1: sweeps of a head stay together (sweep.hpp), -1: never; 0: the default
  std::int32_t parts = 0;           ///< of every group of query heads (split.hpp); 0: the default
  // Other instances than the library's, for a test that compiles them.
  LaunchMain* main_kernel = nullptr;
  LaunchRows* row_kernel = nullptr;
};

/// Queues the backward on `stream`: no allocation, no synchronisation, legal under graph capture. `workspace` has
/// workspace_layout(call).bytes bytes, 256-byte aligned, used by nothing else until the call has run. Throws device
/// with the failed call's name.
void queue_backward(const BackwardCall& call, void* workspace, cudaStream_t stream);

/// Loads every kernel of the backward (sm90/load_kernels.hpp).
void load_kernels();

/// The error word of the last call that used the workspace: 0, or 1 if a wait inside the kernel passed its bound and
/// the results are wrong. Copies from the device; synchronises `stream`.
std::uint32_t read_error(const void* workspace, cudaStream_t stream);

/// What `signal.done` of a chunk reads once all its dK and dV are complete, if it was zero before.
std::uint32_t complete_count(const AttentionShape& shape, std::int32_t chunk_columns, std::int64_t chunk);

}  // namespace flashmask::sm90::backward_pass
