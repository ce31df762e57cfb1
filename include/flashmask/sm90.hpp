// Masked attention on a Hopper GPU (sm_90a): device pointers in, everything queued on the caller's stream
// (docs/forward.md). No CUDA header is needed to use this one: a stream is the cudaStream_t as void*.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "flashmask/attention.hpp"
#include "flashmask/mask.hpp"
#include "flashmask/tile.hpp"

namespace flashmask::sm90 {

struct TileMapView;

/// Tile shapes, mask rows x key columns, that forward() takes its map in, the default first; any heads.
std::span<const TileShape> forward_tiles(std::int64_t head_dim);
/// The default of these.
TileShape forward_tile(std::int64_t head_dim);
/// The tiles for calls of this shape with `mask_heads` mask heads: where 8 divides the query heads of a KV head and of
/// a mask head, also the packed one, in which 8 query heads share the K and V of a tile of 24 mask rows. A packed map
/// serves no other calls, and not the backward.
std::span<const TileShape> forward_tiles(const AttentionShape& shape, std::int64_t mask_heads);
/// The fastest of forward_tiles(shape, mask heads) for `mask`, from exact counts of the blocks that a map would hold
/// and measured costs; milliseconds on the host, once a mask.
TileShape choose_forward_tile(const ColumnMask& mask, const AttentionShape& shape);
/// The fastest of forward_tiles(head_dim): for a map that calls with any heads share.
TileShape choose_forward_tile(const ColumnMask& mask, std::int64_t head_dim);

/// A mask on the device, classified once and then used by every head, layer and pass. Shape fixed at creation.
class DeviceMask {
 public:
  /// `tile` is one of forward_tiles() for forward(), or of backward_tiles(). Allocates; throws invalid_argument,
  /// unsupported (no Hopper GPU) or out_of_memory. The first mask on a device loads every kernel: refill(), forward()
  /// and backward() then never wait for kernels that run beside them, as CUDA's loading at a first launch may. That
  /// first one itself may wait, and destroying a mask does.
  DeviceMask(const MaskShape& shape, TileShape tile);
  /// The same for calls of shape `calls` above all: the row tiles of a mask with several batch rows or heads are worked
  /// on in sections of as many heads as have K and V in the L2 cache (3 to 10% at 32768). Right for all calls
  /// that take the mask and the tile, as `calls` must.
  DeviceMask(const MaskShape& shape, TileShape tile, const AttentionShape& calls);
  ~DeviceMask();
  DeviceMask(DeviceMask&&) noexcept;
  DeviceMask& operator=(DeviceMask&&) noexcept;

  /// Queues the classification of `vectors` (device memory, any int32 values) on `stream`. A null vector stands for LTS
  /// and LTE = rows, UTS and UTE = 0: LTS alone hides [LTS, rows), UTE alone [0, UTE).
  /// Neither allocates nor synchronises; legal under graph capture.
  void refill(const MaskView& vectors, void* stream);
  [[nodiscard]] const TileMapView& view() const;
  /// Device memory held, bytes.
  [[nodiscard]] std::size_t bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Context parallelism: the loader reads a column block only once every chunk under it has arrived, i.e.
/// words[chunk] >= epoch (acquired at system scope).
struct ChunkArrival {
  const std::uint64_t* words = nullptr;  ///< device-visible, one per chunk of columns
  std::uint64_t epoch = 0;
  std::int64_t chunk_columns = 0;
  std::uint32_t deadline_milliseconds = 10000;
  /// Columns [first, end) that are here already: every row tile visits the blocks wholly inside them first.
  std::int64_t first_local_column = 0, end_local_column = 0;
};

struct ForwardArguments {
  AttentionShape shape;
  const TileMapView* map = nullptr;  ///< its tiles one of forward_tiles(); mask batch 1 or shape.batch
  TensorView q, k, v;                ///< device memory, bf16 or f16, dim stride 1, other strides multiples of 8
  MutableTensorView out;
  float* lse = nullptr;          ///< contiguous [batch][query_heads][rows]
  std::optional<float> scale{};  ///< 1e-20 to 1e8; default 1 / sqrt(head_dim)
  void* workspace = nullptr;     ///< forward_workspace_bytes(), prepared once; one per stream in flight
  void* stream = nullptr;        ///< cudaStream_t
  std::int32_t grid = 0;         ///< CTAs; 0: one per multiprocessor
  std::optional<ChunkArrival> arrival{};
};

/// Bytes of device memory that forward() needs besides its tensors; 16-byte aligned.
std::size_t forward_workspace_bytes();
/// Queues the one-time initialisation of a workspace. Every forward() leaves it ready for the next on the same stream.
void prepare_workspace(void* workspace, void* stream);
/// Synchronises `stream` and throws timeout, naming the wait, if a kernel that used this workspace gave up waiting.
void check_workspace(const void* workspace, void* stream);

/// Throws invalid_argument or unsupported, before any work, unless the arguments describe a legal call.
void validate(const ForwardArguments& arguments);
/// Queues out and lse on the stream. Validates first; no allocation, no synchronisation; legal under graph capture.
void forward(const ForwardArguments& arguments);
/// The same for a mask that serves this call alone: refills `mask` from `vectors` on the call's stream and uses its
/// map; arguments.map is ignored.
void forward(ForwardArguments arguments, DeviceMask& mask, const MaskView& vectors);

// ---- Backward (docs/backward.md) ----

/// Tile shapes that backward() takes its map in for calls of this shape, the default first. The other one, twice as
/// wide, is worked on by two multiprocessors that share every tile of Q and dO: masks that are dense at that width
/// gain (head dims up to 64: little, and only without a border inside it), short documents lose. Not for the
/// deterministic mode.
std::span<const TileShape> backward_tiles(const AttentionShape& shape, bool deterministic = false);
/// The default, which every call takes.
TileShape backward_tile();
/// The fastest of backward_tiles() for `mask` and calls of this shape, from exact counts of the tiles that a map would
/// hold times measured costs. On the host: milliseconds for a mask of 131072 columns (the more of its tiles are
/// partial, the longer: random_eviction takes 26), in proportion to batch rows and mask heads.
TileShape choose_backward_tile(const ColumnMask& mask, const AttentionShape& shape, bool deterministic = false);

/// Progress for whoever sends dK and dV on while the backward still runs: counts[chunk] rises with release semantics as
/// the column blocks under a chunk are written; dK and dV of the chunk are complete at backward_complete_count().
struct ChunkCompletion {
  std::uint32_t* counts = nullptr;  ///< device memory, one per chunk of columns, zeroed by the caller before the call
  std::int64_t chunk_columns = 0;
};

struct BackwardArguments {
  AttentionShape shape;
  const TileMapView* map = nullptr;  ///< its tiles one of backward_tiles(); mask batch 1 or shape.batch
  TensorView q, k, v, out, dout;     ///< device memory, bf16 or f16, dim stride 1, other strides multiples of 8
  const float* lse = nullptr;        ///< the forward's, contiguous [batch][query_heads][rows]
  MutableTensorView dq, dk, dv;
  std::optional<float> scale{};     ///< 1e-20 to 1e8; default 1 / sqrt(head_dim)
  void* workspace = nullptr;        ///< 256-byte aligned, needs no preparation; one per call in flight
  std::size_t workspace_bytes = 0;  ///< what it has; backward_workspace_bytes() or more
  void* stream = nullptr;           ///< cudaStream_t
  /// Bitwise equal results from run to run. dQ then has a pass of its own (seven products instead of five).
  bool deterministic = false;
  /// Order in which column blocks of the map are taken, e.g. remote chunks first: a permutation of (mask batch row,
  /// mask head, column block) as flat indices, in device memory; null: heaviest first. A permutation whenever it is
  /// given, though not followed where grouped heads have a mask head per query head, unless their groups are split to
  /// single heads.
  const std::int32_t* order = nullptr;
  std::optional<ChunkCompletion> completion{};
};

/// Bytes of device memory that backward() needs besides its tensors: row statistics (8 bytes a row and query head),
/// column intervals (16 bytes a column and mask head), unless deterministic dQ in float32, and where grouped heads
/// leave fewer than 1,056 blocks of 128 columns, dK and dV in float32 for each part of a group (at most one a query
/// head).
std::size_t backward_workspace_bytes(const AttentionShape& shape, const MaskShape& mask, bool deterministic);
/// Synchronises `stream` and throws timeout if the last backward() on this workspace gave up waiting.
void check_backward_workspace(const void* workspace, void* stream);
/// What ChunkCompletion::counts of a chunk reads once all its gradients are written.
std::uint32_t backward_complete_count(const AttentionShape& shape, std::int64_t chunk_columns, std::int64_t chunk);

/// Throws invalid_argument or unsupported, before any work, unless the arguments describe a legal call.
void validate(const BackwardArguments& arguments);
/// Queues dq, dk and dv on the stream. Validates first; no allocation, no synchronisation; legal under graph capture.
void backward(const BackwardArguments& arguments);

}  // namespace flashmask::sm90
