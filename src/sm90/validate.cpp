// What forward() and backward() refuse before anything is queued. Needs no CUDA: tested on every machine.
#include "sm90/validate.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/check.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/forward/limits.hpp"
#include "sm90/layout/check_tensor.hpp"
#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90 {
namespace {

using forward_pass::can_pack;
using forward_pass::heads_a_pack;
using forward_pass::largest_head_dim;
using forward_pass::packed_heads_of;

/// Work items are numbered in int32, and a multiprocessor may draw a number or two past the last.
constexpr std::int64_t largest_count = (std::int64_t{1} << 31) - 65536;

/// Rows and columns leave room for three tiles below 2^31, as tile maps ask.
constexpr std::int64_t largest_extent = (std::int64_t{1} << 31) - 1 - 512;
/// Smallest tile that work is counted in, of rows or columns.
constexpr std::int64_t work_positions = 64;

/// What the kernels' float32 arithmetic takes: they work with scale x log2(e), the forward's rows start from a maximum
/// of -1e30 (softmax.cuh), which stays finite times that and below every score worth a name, and the backward starts S
/// from -lse / scale.
constexpr float smallest_scale = 1e-20F, largest_scale = 1e8F;

/// Shape, element type and scale: what both passes ask of a call as a whole.
void check_call(const AttentionShape& s, DType dtype, const std::optional<float>& scale) {
  check_shape(s);
  if (dtype != DType::bf16 && dtype != DType::f16) {
    core::fail(ErrorCode::unsupported,
               "sm90 takes bf16 and f16 tensors, q is {} (DType {}); convert q, k, v or use the cpu backend",
               to_string(dtype), static_cast<int>(dtype));
  }
  const float value = scale.value_or(1);
  core::check(
      value >= smallest_scale && value <= largest_scale,
      "scale is {}: the kernels take {:g} to {:g}; scale q or k instead, or leave it unset for 1 / sqrt(head_dim)",
      value, smallest_scale, largest_scale);
}

void check_map(const TileMapView* map, const AttentionShape& s, std::span<const TileShape> tiles,
               std::string_view source) {
  core::check(map != nullptr, "map is null; build a DeviceMask with {} and pass its view()", source);
  const TileShape tile{map->block_m, map->block_n};
  core::check(std::find(tiles.begin(), tiles.end(), tile) != tiles.end(),
              "the tile map has tiles of {}x{}, this call (head_dim {}) takes {}x{}{}; build it with {}", tile.block_m,
              tile.block_n, s.head_dim, tiles.front().block_m, tiles.front().block_n,
              tiles.size() > 1 ? " and others" : "", source);
  core::check(map->packed_heads == packed_heads_of(tile), "the tile map packs {} query heads into {} rows; expected {}",
              map->packed_heads, tile.block_m, packed_heads_of(tile));
  check_mask_shape("the tile map", {map->batch, map->heads, map->rows, map->columns}, s);
  const std::int64_t tiles_a_head = std::max(map->row_tiles, map->column_blocks);
  core::check(s.batch * s.query_heads * tiles_a_head < largest_count,
              "batch x query_heads x tiles = {} x {} x {} exceeds 2^31; split the batch", s.batch, s.query_heads,
              tiles_a_head);
}

/// What a packed map asks beside that.
void check_packing(const ForwardArguments& a) {
  if (a.map == nullptr || packed_heads_of({a.map->block_m, a.map->block_n}) == 1) return;
  const AttentionShape& s = a.shape;
  core::check(
      can_pack(s, a.map->heads),
      "the tile map packs {} query heads into a row tile, which must divide the query heads of a KV head and of "
      "a mask head; got {} query heads, {} KV heads, {} mask heads: build it with one of forward_tiles(shape, "
      "mask_heads)",
      heads_a_pack, s.query_heads, s.kv_heads, a.map->heads);
}

void check_arrival(const ChunkArrival& arrival, const AttentionShape& s) {
  core::check(arrival.words != nullptr, "arrival.words is null; pass one 64-bit word per chunk, visible to the device");
  layout::check_alignment("arrival.words", arrival.words, alignof(std::uint64_t));
  check_chunk_columns("arrival.chunk_columns", arrival.chunk_columns);
  core::check(arrival.first_local_column >= 0 && arrival.first_local_column <= arrival.end_local_column &&
                  arrival.end_local_column <= s.columns,
              "arrival: local columns must be a range inside [0, {}), got [{}, {}); leave both 0 where none is local",
              s.columns, arrival.first_local_column, arrival.end_local_column);
}

void check_completion(const ChunkCompletion& completion) {
  core::check(completion.counts != nullptr, "completion.counts is null; pass one zeroed 32-bit count per chunk");
  layout::check_alignment("completion.counts", completion.counts, alignof(std::uint32_t));
  check_chunk_columns("completion.chunk_columns", completion.chunk_columns);
}

}  // namespace

void check_shape(const AttentionShape& s) {
  const auto in_range = [](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
    core::check(value >= least && value <= most, "shape.{} is {}: it must lie in [{}, {}]", name, value, least, most);
  };
  in_range("batch", s.batch, 0, largest_count);
  in_range("rows", s.rows, 0, largest_extent);
  in_range("columns", s.columns, 0, largest_extent);
  in_range("query_heads", s.query_heads, 1, largest_count);
  in_range("kv_heads", s.kv_heads, 1, largest_count);
  core::check(s.query_heads % s.kv_heads == 0, "query_heads ({}) must be a multiple of kv_heads ({})", s.query_heads,
              s.kv_heads);
  if (s.head_dim < 8 || s.head_dim > largest_head_dim || s.head_dim % 8 != 0) {
    core::fail(ErrorCode::unsupported, "head_dim must be a multiple of 8 from 8 to {} on sm90, got {}",
               largest_head_dim, s.head_dim);
  }
  const std::int64_t blocks = std::max(s.rows, s.columns) / work_positions + 1;
  // Masks and workspaces of an empty batch have a size too.
  core::check(
      std::max<std::int64_t>(s.batch, 1) * s.query_heads < largest_count / blocks,
      "batch (an empty one counts as 1) x query_heads x blocks of {} positions = {} x {} x {} exceeds 2^31; split "
      "the batch or the heads",
      work_positions, s.batch, s.query_heads, blocks);
}

void check_mask_shape(const char* what, const MaskShape& mask, const AttentionShape& s) {
  core::check(mask.rows == s.rows && mask.columns == s.columns,
              "{} speaks of {} rows and {} columns, the call of {} and {}", what, mask.rows, mask.columns, s.rows,
              s.columns);
  core::check(mask.batch == 1 || mask.batch == s.batch, "mask batch must be 1 or {}, got {}", s.batch, mask.batch);
  core::check(mask.heads == 1 || mask.heads == s.kv_heads || mask.heads == s.query_heads,
              "mask heads must be 1, kv_heads ({}) or query_heads ({}), got {}", s.kv_heads, s.query_heads, mask.heads);
}

void check_chunk_columns(const char* what, std::int64_t columns) {
  core::check(columns >= 1 && columns < std::int64_t{1} << 31, "{} is {}: it must lie in [1, {}]", what, columns,
              (std::int64_t{1} << 31) - 1);
}

void check_forward_memory(const void* workspace) {
  core::check(workspace != nullptr,
              "workspace is null; allocate forward_workspace_bytes() on the device and prepare_workspace() it");
  layout::check_alignment("workspace", workspace, 16);
}

void check_backward_memory(const void* workspace) {
  core::check(workspace != nullptr && reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0,
              "workspace must be backward_workspace_bytes() of device memory aligned to 256 bytes, got {}", workspace);
}

void validate(const ForwardArguments& a) {
  const AttentionShape& s = a.shape;
  check_call(s, a.q.dtype, a.scale);
  check_packing(a);
  check_map(a.map, s, forward_tiles(s, a.map == nullptr ? 1 : a.map->heads), "one of forward_tiles()");
  check_forward_memory(a.workspace);
  core::check(a.grid >= 0, "grid must be 0 or the number of CTAs, got {}", a.grid);
  if (a.arrival) check_arrival(*a.arrival, s);
  if (s.batch == 0 || s.rows == 0) return;
  core::check(a.lse != nullptr, "lse is null; pass float32 [batch][query_heads][rows] on the device");
  layout::check_alignment("lse", a.lse, alignof(float));
  const layout::Extents query{s.batch, s.rows, s.query_heads, s.head_dim};
  const layout::Extents key{s.batch, s.columns, s.kv_heads, s.head_dim};
  layout::check_tensor("q", a.q, a.q.dtype, query);
  layout::check_output("out", a.out, a.q.dtype, query);
  std::vector<layout::NamedMemory> inputs{{"q", a.q.data}};
  if (s.columns > 0) {
    layout::check_tensor("k", a.k, a.q.dtype, key);
    layout::check_tensor("v", a.v, a.q.dtype, key);
    inputs.insert(inputs.end(), {{"k", a.k.data}, {"v", a.v.data}});
  }
  const std::array<layout::NamedMemory, 3> outputs{{{"out", a.out.data}, {"lse", a.lse}, {"workspace", a.workspace}}};
  layout::check_apart(outputs, inputs);
}

void validate(const BackwardArguments& a) {
  const AttentionShape& s = a.shape;
  check_call(s, a.q.dtype, a.scale);
  check_map(a.map, s, backward_tiles(s, a.deterministic), "one of backward_tiles(shape, deterministic)");
  check_backward_memory(a.workspace);
  const std::size_t needed =
      backward_workspace_bytes(s, {a.map->batch, a.map->heads, s.rows, s.columns}, a.deterministic);
  core::check(a.workspace_bytes >= needed,
              "workspace_bytes is {}: this call needs {}; allocate backward_workspace_bytes() of its shape, mask shape "
              "and deterministic",
              a.workspace_bytes, needed);
  if (a.order != nullptr) layout::check_alignment("order", a.order, alignof(std::int32_t));
  if (a.completion) check_completion(*a.completion);
  if (s.batch == 0) return;
  const layout::Extents query{s.batch, s.rows, s.query_heads, s.head_dim};
  const layout::Extents key{s.batch, s.columns, s.kv_heads, s.head_dim};
  std::vector<layout::NamedMemory> outputs{{"workspace", a.workspace}}, inputs;
  if (s.rows > 0) {
    core::check(a.lse != nullptr, "lse is null; pass the forward's float32 [batch][query_heads][rows]");
    layout::check_alignment("lse", a.lse, alignof(float));
    layout::check_tensor("q", a.q, a.q.dtype, query);
    layout::check_tensor("out", a.out, a.q.dtype, query);
    layout::check_tensor("dout", a.dout, a.q.dtype, query);
    layout::check_output("dq", a.dq, a.q.dtype, query);
    outputs.push_back({"dq", a.dq.data});
    inputs.insert(inputs.end(), {{"q", a.q.data}, {"out", a.out.data}, {"dout", a.dout.data}, {"lse", a.lse}});
  }
  if (s.columns > 0) {
    layout::check_tensor("k", a.k, a.q.dtype, key);
    layout::check_tensor("v", a.v, a.q.dtype, key);
    layout::check_output("dk", a.dk, a.q.dtype, key);
    layout::check_output("dv", a.dv, a.q.dtype, key);
    outputs.insert(outputs.end(), {{"dk", a.dk.data}, {"dv", a.dv.data}});
    inputs.insert(inputs.end(), {{"k", a.k.data}, {"v", a.v.data}});
  }
  layout::check_apart(outputs, inputs);
}

}  // namespace flashmask::sm90
