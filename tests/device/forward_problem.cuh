// A forward call as the device tests make it: a problem, its inputs, its map, one run.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/compare.hpp"
#include "device/device_tensor.hpp"
#include "device/naive_reference.cuh"
#include "flashmask/builders.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/tile_map/device_map.hpp"
#include "sm90/tile_map/host_map.hpp"

namespace flashmask::device {

struct Problem {
  AttentionShape shape;
  ColumnMask mask;
  Layout layout = Layout::bshd;
  std::int32_t grid = 0;
  float spread = 1;      ///< standard deviation of q and k
  bool bitmaps = false;  ///< bit patterns of partial blocks from the tile map instead of the mask generators
  std::optional<sm90::MapCapacity> capacity{};  ///< overrides that
  std::size_t tile = 0;                         ///< index into forward_tiles()
};

struct Workspace {
  DeviceBuffer<std::uint8_t> bytes{static_cast<std::int64_t>(sm90::forward_workspace_bytes())};
  Workspace() { sm90::prepare_workspace(bytes.data(), nullptr); }
};

template <typename T>
struct Inputs {
  DeviceTensor<T> q, k, v;
  explicit Inputs(const Problem& p) {
    const AttentionShape& s = p.shape;
    q = DeviceTensor<T>(s.batch, s.rows, s.query_heads, s.head_dim, p.layout);
    k = DeviceTensor<T>(s.batch, s.columns, s.kv_heads, s.head_dim, p.layout);
    v = DeviceTensor<T>(s.batch, s.columns, s.kv_heads, s.head_dim, p.layout);
    fill_normal(q, 1, p.spread);
    fill_normal(k, 2, p.spread);
    fill_normal(v, 3, 1);
  }
};

struct Result {
  std::vector<double> out, lse;
};

inline sm90::DeviceTileMap make_map(const Problem& p) {
  const TileShape tile = sm90::forward_tiles(p.shape.head_dim)[p.tile];
  sm90::DeviceTileMap::Options options;
  options.capacity = sm90::default_capacity(p.mask.shape(), tile);
  if (!p.bitmaps) options.capacity->bitmaps = 0;
  if (p.capacity) options.capacity = p.capacity;
  return {p.mask.shape(), tile, options};
}

inline void fill_map(sm90::DeviceTileMap& map, const DeviceMaskVectors& v, cudaStream_t stream = nullptr) {
  map.refill({v.lts.data(), v.lte.data(), v.uts.data(), v.ute.data()}, stream);
}

template <typename T>
Result run(const Problem& p, const Inputs<T>& in, Workspace& workspace) {
  const AttentionShape& s = p.shape;
  DeviceTensor<T> out(s.batch, s.rows, s.query_heads, s.head_dim, p.layout);
  DeviceBuffer<float> lse(s.batch * s.query_heads * s.rows);
  const DeviceMaskVectors vectors(p.mask.view());
  sm90::DeviceTileMap mask = make_map(p);
  fill_map(mask, vectors);
  sm90::ForwardArguments a;
  a.shape = s, a.map = &mask.view(), a.grid = p.grid;
  a.q = in.q.view(), a.k = in.k.view(), a.v = in.v.view(), a.out = out.mutable_view();
  a.lse = lse.data(), a.workspace = workspace.bytes.data();
  sm90::forward(a);
  sm90::check_workspace(workspace.bytes.data(), nullptr);
  const std::vector<float> raw = lse.download();
  return {out.download(), {raw.begin(), raw.end()}};
}

inline ColumnMask named(const char* name, std::int64_t rows, std::int64_t columns = -1, std::int64_t batch = 1,
                        std::int64_t heads = 1) {
  masks::BuilderOptions options;
  options.rows = rows;
  if (columns >= 0) options.columns = columns;
  options.batch = batch, options.mask_heads = heads;
  return masks::build(name, options);
}

}  // namespace flashmask::device
