// What forward() and backward() refuse before anything is queued. Needs no CUDA: tested on every machine.
#include "sm90/validate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/check.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/backward/config.hpp"
#include "sm90/forward/limits.hpp"
#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90 {
namespace {

using forward_pass::can_pack;
using forward_pass::heads_a_pack;
using forward_pass::largest_head_dim;
using forward_pass::packed_heads_of;

/// Work items are numbered in int32, and a multiprocessor may draw a number or two past the last.
constexpr std::int64_t largest_count = (std::int64_t{1} << 31) - 65536;

/// Of one tensor: batch, positions, heads.
using Extents = std::array<std::int64_t, 3>;

/// Shape, element type and scale: what both passes ask of a call as a whole.
void check_call(const AttentionShape& s, DType dtype, const std::optional<float>& scale) {
  check_shape(s);
  if (dtype != DType::bf16 && dtype != DType::f16) {
    core::fail(ErrorCode::unsupported, "sm90 takes bf16 and f16 tensors; convert q, k, v or use the cpu backend");
  }
  core::check(!scale || (*scale > 0 && std::isfinite(*scale)), "scale must be positive and finite, got {}",
              scale.value_or(0));
}

void check_map(const TileMapView* map, const AttentionShape& s, std::span<const TileShape> tiles,
               std::string_view source) {
  core::check(map != nullptr, "map is null; build a DeviceMask with {} and pass its view()", source);
  const TileShape tile{map->block_m, map->block_n};
  core::check(std::find(tiles.begin(), tiles.end(), tile) != tiles.end(),
              "the tile map has tiles of {}x{}, head_dim {} takes {}x{}{}; build it with {}", tile.block_m,
              tile.block_n, s.head_dim, tiles.front().block_m, tiles.front().block_n,
              tiles.size() > 1 ? " and others" : "", source);
  core::check(map->packed_heads == packed_heads_of(tile), "the tile map packs {} query heads into {} rows; expected {}",
              map->packed_heads, tile.block_m, packed_heads_of(tile));
  core::check(map->rows == s.rows && map->columns == s.columns,
              "the tile map speaks of {} rows and {} columns, the call of {} and {}", map->rows, map->columns, s.rows,
              s.columns);
  core::check(map->batch == 1 || map->batch == s.batch, "mask batch must be 1 or {}, got {}", s.batch, map->batch);
  core::check(map->heads == 1 || map->heads == s.kv_heads || map->heads == s.query_heads,
              "mask heads must be 1, kv_heads ({}) or query_heads ({}), got {}", s.kv_heads, s.query_heads, map->heads);
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

void check_tensor(const char* name, const TensorView& tensor, DType dtype, const Extents& extents) {
  core::check(tensor.data != nullptr, "{} is null; pass device memory", name);
  core::check(tensor.dtype == dtype, "{} has another dtype than q; all tensors of a call share one", name);
  core::check(tensor.strides[3] == 1,
              "{}: the stride of head_dim must be 1, got {}; make the last dimension contiguous", name,
              tensor.strides[3]);
  core::check(reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0,
              "{}: the data pointer must be aligned to 16 bytes, got {}", name, tensor.data);
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    if (extents[axis] <= 1) continue;  // never followed
    const std::int64_t stride = tensor.strides[axis];
    core::check(stride > 0 && stride % 8 == 0,
                "{}: stride {} of axis {} must be a positive multiple of 8 elements (16 bytes); copy the tensor or pad "
                "head_dim to a multiple of 8",
                name, stride, axis);
  }
}

void check_arrival(const ChunkArrival& arrival, const AttentionShape& s) {
  core::check(arrival.words != nullptr && arrival.chunk_columns > 0,
              "arrival needs words and a positive chunk_columns, got {}", arrival.chunk_columns);
  core::check(arrival.first_local_column >= 0 && arrival.end_local_column <= s.columns,
              "local columns must lie in [0, {}], got [{}, {})", s.columns, arrival.first_local_column,
              arrival.end_local_column);
}

}  // namespace

void check_shape(const AttentionShape& s) {
  core::check(s.batch >= 0 && s.rows >= 0 && s.columns >= 0 && s.query_heads >= 1 && s.kv_heads >= 1,
              "extents must not be negative: batch {}, rows {}, columns {}, query_heads {}, kv_heads {}", s.batch,
              s.rows, s.columns, s.query_heads, s.kv_heads);
  core::check(s.query_heads % s.kv_heads == 0, "query_heads ({}) must be a multiple of kv_heads ({})", s.query_heads,
              s.kv_heads);
  if (s.head_dim < 8 || s.head_dim > largest_head_dim || s.head_dim % 8 != 0) {
    core::fail(ErrorCode::unsupported, "head_dim must be a multiple of 8 from 8 to {} on sm90, got {}",
               largest_head_dim, s.head_dim);
  }
}

TileShape backward_tile() {
  return {backward_pass::block_rows, backward_pass::block_columns};
}

void validate(const ForwardArguments& a) {
  const AttentionShape& s = a.shape;
  check_call(s, a.q.dtype, a.scale);
  check_packing(a);
  check_map(a.map, s, forward_tiles(s, a.map == nullptr ? 1 : a.map->heads), "one of forward_tiles()");
  core::check(a.workspace != nullptr,
              "workspace is null; allocate forward_workspace_bytes() and prepare_workspace() it");
  core::check(a.grid >= 0, "grid must be 0 or the number of CTAs, got {}", a.grid);
  if (a.arrival) check_arrival(*a.arrival, s);
  if (s.batch == 0 || s.rows == 0) return;
  core::check(a.lse != nullptr, "lse is null; pass float32 [batch][query_heads][rows] on the device");
  const Extents query{s.batch, s.rows, s.query_heads}, key{s.batch, s.columns, s.kv_heads};
  check_tensor("q", a.q, a.q.dtype, query);
  check_tensor("out", a.out, a.q.dtype, query);
  if (s.columns == 0) return;
  check_tensor("k", a.k, a.q.dtype, key);
  check_tensor("v", a.v, a.q.dtype, key);
}

void validate(const BackwardArguments& a) {
  const AttentionShape& s = a.shape;
  check_call(s, a.q.dtype, a.scale);
  const float scale = a.scale.value_or(1);
  core::check(scale >= 1e-30F && scale <= 1e30F,
              "scale is {}: the backward starts S from -lse / scale and takes 1e-30 to 1e30; scale q or k instead",
              scale);
  const TileShape tile = backward_tile();
  check_map(a.map, s, {&tile, 1}, "backward_tile()");
  core::check(a.workspace != nullptr && reinterpret_cast<std::uintptr_t>(a.workspace) % 256 == 0,
              "workspace must be backward_workspace_bytes() of device memory aligned to 256 bytes, got {}",
              a.workspace);
  core::check(!a.completion || (a.completion->counts != nullptr && a.completion->chunk_columns > 0),
              "completion needs counts and a positive chunk_columns, got {}",
              a.completion ? a.completion->chunk_columns : 0);
  if (s.batch == 0) return;
  const Extents query{s.batch, s.rows, s.query_heads}, key{s.batch, s.columns, s.kv_heads};
  if (s.rows > 0) {
    core::check(a.lse != nullptr, "lse is null; pass the forward's float32 [batch][query_heads][rows]");
    check_tensor("q", a.q, a.q.dtype, query);
    check_tensor("out", a.out, a.q.dtype, query);
    check_tensor("dout", a.dout, a.q.dtype, query);
    check_tensor("dq", a.dq, a.q.dtype, query);
  }
  if (s.columns > 0) {
    check_tensor("k", a.k, a.q.dtype, key);
    check_tensor("v", a.v, a.q.dtype, key);
    check_tensor("dk", a.dk, a.q.dtype, key);
    check_tensor("dv", a.dv, a.q.dtype, key);
  }
}

}  // namespace flashmask::sm90
