// One forward call as tests make it: random inputs, NaN-poisoned outputs, a fresh map, the oracle and the allowance.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/compare.hpp"
#include "device/device_tensor.hpp"
#include "device/naive_reference.cuh"
#include "flashmask/builders.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/forward/limits.hpp"
#include "sm90/tile_map/device_map.hpp"
#include "sm90/tile_map/host_map.hpp"

namespace flashmask::device {

/// Reused from call to call, as a user would.
struct ForwardWorkspace {
  DeviceBuffer<std::uint8_t> bytes{static_cast<std::int64_t>(sm90::forward_workspace_bytes())};
  ForwardWorkspace() { sm90::prepare_workspace(bytes.data(), nullptr); }
  void check() const { sm90::check_workspace(bytes.data(), nullptr); }
};

/// What a call may vary besides its shape, mask and seed.
struct ForwardSetup {
  Layout layout = Layout::bshd;
  float spread = 1;                             ///< standard deviation of q and k (0: the count probe)
  std::int32_t grid = 0;                        ///< CTAs; 0: one per multiprocessor
  std::optional<float> scale{};                 ///< default 1 / sqrt(head_dim)
  std::optional<TileShape> tile{};              ///< one of forward_tiles(); default forward_tile(head_dim)
  bool bitmaps = true;                          ///< bit patterns of partial blocks, else the mask generators
  std::optional<sm90::MapCapacity> capacity{};  ///< of the tile map, instead of what a DeviceMask takes
};

/// The tile whose maps calls with 8 query heads a KV head and a mask head may take.
inline TileShape packed_tile(std::int64_t head_dim) {
  return sm90::forward_tiles({1, 1, 1, sm90::forward_pass::heads_a_pack, 1, head_dim}, 1).back();
}

/// The mask as a user has it, or a tile map of a capacity of its own.
class ForwardMask {
 public:
  ForwardMask(const MaskShape& shape, const AttentionShape& calls, const ForwardSetup& setup) {
    const TileShape tile = setup.tile.value_or(sm90::forward_tile(calls.head_dim));
    if (setup.bitmaps && !setup.capacity) {
      mask_.emplace(shape, tile, calls);
      return;
    }
    sm90::DeviceTileMap::Options options;
    options.form.packed_heads = sm90::forward_pass::packed_heads_of(tile);
    options.capacity =
        setup.capacity ? setup.capacity : sm90::default_capacity(shape, tile, sm90::default_bitmap_bytes, options.form);
    if (!setup.bitmaps) options.capacity->bitmaps = 0;
    map_.emplace(shape, tile, options);
  }
  [[nodiscard]] const sm90::TileMapView& view() const { return mask_ ? mask_->view() : map_->view(); }
  void refill(const MaskView& vectors, cudaStream_t stream) {
    if (mask_) {
      mask_->refill(vectors, stream);
    } else {
      map_->refill({vectors.lts, vectors.lte, vectors.uts, vectors.ute}, stream);
    }
  }

 private:
  std::optional<sm90::DeviceMask> mask_;
  std::optional<sm90::DeviceTileMap> map_;
};

/// The vectors of a mask once for every batch row, as the oracle wants them.
inline DeviceMaskVectors repeated(const MaskView& mask, std::int64_t batch) {
  if (mask.shape.batch == batch) return DeviceMaskVectors(mask);
  std::vector<std::int32_t> copies[4];
  for (std::int64_t b = 0; b < batch; ++b) {
    for (const auto& [to, from] :
         {std::pair{&copies[0], mask.lts}, {&copies[1], mask.lte}, {&copies[2], mask.uts}, {&copies[3], mask.ute}}) {
      to->insert(to->end(), from, from + mask.shape.vector_size());
    }
  }
  MaskShape shape = mask.shape;
  shape.batch = batch;
  return DeviceMaskVectors({copies[0].data(), copies[1].data(), copies[2].data(), copies[3].data(), shape});
}

/// Tensors of one call. The mask has one batch row, or as many as the call.
template <typename T>
struct ForwardCase {
  AttentionShape shape;
  ForwardSetup setup;
  DeviceMaskVectors vectors, oracle_vectors;
  DeviceTensor<T> q, k, v, out;
  DeviceBuffer<float> lse;
  ForwardMask mask;

  ForwardCase(const AttentionShape& s, const MaskView& host_mask, std::uint64_t seed, const ForwardSetup& how = {})
      : shape(s),
        setup(how),
        vectors(host_mask),
        oracle_vectors(repeated(host_mask, s.batch)),
        q(s.batch, s.rows, s.query_heads, s.head_dim, how.layout),
        k(s.batch, s.columns, s.kv_heads, s.head_dim, how.layout),
        v(s.batch, s.columns, s.kv_heads, s.head_dim, how.layout),
        out(s.batch, s.rows, s.query_heads, s.head_dim, how.layout),
        lse(s.batch * s.query_heads * s.rows),
        mask(host_mask.shape, s, how) {
    fill_normal(q, 4 * seed + 1, how.spread), fill_normal(k, 4 * seed + 2, how.spread), fill_normal(v, 4 * seed + 3);
  }

  [[nodiscard]] sm90::ForwardArguments arguments(const ForwardWorkspace& workspace,
                                                 cudaStream_t stream = nullptr) const {
    sm90::ForwardArguments a;
    a.shape = shape, a.map = &mask.view(), a.grid = setup.grid, a.scale = setup.scale;
    a.q = q.view(), a.k = k.view(), a.v = v.view(), a.out = out.mutable_view(), a.lse = lse.data();
    a.workspace = workspace.bytes.data(), a.stream = stream;
    return a;
  }
  void poison() { out.poison(), lse.poison(); }
  void run(const ForwardWorkspace& workspace, cudaStream_t stream = nullptr) {
    mask.refill(vectors.view(), stream);
    sm90::forward(arguments(workspace, stream));
  }
  [[nodiscard]] std::vector<double> lse_values() const {
    const std::vector<float> raw = lse.download();
    return {raw.begin(), raw.end()};
  }
  /// Compares out and lse with the oracle; true if both hold.
  bool expect_right(WorstErrors& errors, const std::string& context) const {
    NaiveInputs<T> in{shape, &q, &k, &v, nullptr, &oracle_vectors};
    if (setup.scale) in.scale = static_cast<double>(*setup.scale);
    const NaiveResult exact = naive_attention<double, false>(in), naive = naive_attention<float, true>(in);
    const bool lse_right = errors.expect_close("lse", lse_values(), exact.lse, naive.lse, DType::f32, context);
    return errors.expect_close("out", out.download(), exact.out, naive.out, dtype_of<T>, context) && lse_right;
  }
};

inline ColumnMask named(const std::string& name, std::int64_t rows, std::int64_t columns = -1, std::int64_t batch = 1,
                        std::int64_t heads = 1) {
  masks::BuilderOptions options;
  options.rows = rows;
  if (columns >= 0) options.columns = columns;
  options.batch = batch, options.mask_heads = heads;
  return masks::build(name, options);
}

}  // namespace flashmask::device
