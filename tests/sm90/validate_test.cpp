// What forward() and backward() on a Hopper GPU refuse, before any work: needs no GPU and no CUDA.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "flashmask/error.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90 {
namespace {

/// Text of the error that validate() throws for these arguments, empty if none.
template <typename Arguments>
std::string refusal(const Arguments& a) {
  try {
    validate(a);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TileMapView map_of(TileShape tile) {
  TileMapView map{};
  map.rows = 100, map.columns = 200, map.batch = 1, map.heads = 1;
  map.packed_heads = 1;
  map.block_m = tile.block_m, map.block_n = tile.block_n;
  map.row_tiles = (100 + tile.block_m - 1) / tile.block_m, map.column_blocks = (200 + tile.block_n - 1) / tile.block_n;
  return map;
}

constexpr AttentionShape shape{2, 100, 200, 4, 2, 128};
alignas(256) std::byte memory[512];
const TensorView tensor{memory, DType::bf16, {65536, 512, 128, 1}};

/// Refused with a text that contains `expected` once `spoil(arguments, map)` has touched a good call.
template <typename Arguments>
void expect_refused(const Arguments& good, const char* expected, void (*spoil)(Arguments&, TileMapView&)) {
  Arguments a = good;
  TileMapView map = *good.map;
  a.map = &map;
  spoil(a, map);
  EXPECT_NE(refusal(a).find(expected), std::string::npos) << "expected " << expected << ", got: " << refusal(a);
}

/// What both passes ask.
template <typename Arguments>
void expect_common_refusals(const Arguments& good) {
  using A = Arguments;
  using M = TileMapView;
  expect_refused<A>(good, "must not be negative", [](A& a, M&) { a.shape.batch = -1; });
  expect_refused<A>(good, "kv_heads", [](A& a, M&) { a.shape.kv_heads = 3; });
  expect_refused<A>(good, "head_dim", [](A& a, M&) { a.shape.head_dim = 136; });
  expect_refused<A>(good, "head_dim", [](A& a, M&) { a.shape.head_dim = 60; });
  expect_refused<A>(good, "map is null", [](A& a, M&) { a.map = nullptr; });
  expect_refused<A>(good, "tiles of 128x128", [](A&, M& m) { m.block_m = 128, m.block_n = 128; });
  expect_refused<A>(good, "packs 8 query heads", [](A&, M& m) { m.packed_heads = 8; });
  expect_refused<A>(good, "101 rows", [](A&, M& m) { m.rows = 101; });
  expect_refused<A>(good, "mask batch", [](A&, M& m) { m.batch = 3; });
  expect_refused<A>(good, "mask heads", [](A&, M& m) { m.heads = 3; });
  expect_refused<A>(good, "exceeds 2^31", [](A& a, M& m) { m.row_tiles = 1 << 30, a.shape.query_heads = 8; });
  expect_refused<A>(good, "scale", [](A& a, M&) { a.scale = -1.0F; });
  expect_refused<A>(good, "scale", [](A& a, M&) { a.scale = std::numeric_limits<float>::quiet_NaN(); });
  expect_refused<A>(good, "workspace", [](A& a, M&) { a.workspace = nullptr; });
  expect_refused<A>(good, "lse is null", [](A& a, M&) { a.lse = nullptr; });
  expect_refused<A>(good, "bf16 and f16", [](A& a, M&) { a.q.dtype = DType::f32; });
  expect_refused<A>(good, "k is null", [](A& a, M&) { a.k.data = nullptr; });
  expect_refused<A>(good, "v: the stride of head_dim", [](A& a, M&) { a.v.strides[3] = 2; });
  expect_refused<A>(good, "aligned to 16", [](A& a, M&) { a.q.data = memory + 8; });
  expect_refused<A>(good, "v: stride 130 of axis 1", [](A& a, M&) { a.v.strides[1] = 130; });
  expect_refused<A>(good, "k: stride -512 of axis 1", [](A& a, M&) { a.k.strides[1] = -512; });
  A one_row = good;  // a stride over one batch row is never followed
  one_row.shape.batch = 1, one_row.q.strides[0] = 3;
  EXPECT_EQ(refusal(one_row), "");
}

TEST(Validate, forward_names_what_is_wrong) {
  const TileMapView map = map_of(forward_tile(128));
  ForwardArguments good;
  good.shape = shape, good.map = &map, good.workspace = memory, good.lse = reinterpret_cast<float*>(memory);
  good.q = good.k = good.v = tensor, good.out = {memory, DType::bf16, tensor.strides};
  ASSERT_EQ(refusal(good), "");
  expect_common_refusals(good);
  using A = ForwardArguments;
  using M = TileMapView;
  const std::uint64_t words[4] = {};
  good.arrival = ChunkArrival{words, 1, 64, 100, 0, 100};
  ASSERT_EQ(refusal(good), "");
  expect_refused<A>(good, "arrival", [](A& a, M&) { a.arrival->words = nullptr; });
  expect_refused<A>(good, "arrival", [](A& a, M&) { a.arrival->chunk_columns = 0; });
  expect_refused<A>(good, "local columns", [](A& a, M&) { a.arrival->end_local_column = 201; });
  expect_refused<A>(good, "grid", [](A& a, M&) { a.grid = -1; });
  expect_refused<A>(good, "out has another dtype", [](A& a, M&) { a.out.dtype = DType::f16; });
}

TEST(Validate, a_packed_map_serves_calls_whose_heads_eight_divides) {
  TileMapView map = map_of({24, 80});
  map.packed_heads = 8;
  ForwardArguments good;
  good.shape = {2, 100, 200, 32, 2, 128}, good.map = &map, good.workspace = memory;
  good.lse = reinterpret_cast<float*>(memory);
  good.q = good.k = good.v = tensor, good.out = {memory, DType::bf16, tensor.strides};
  ASSERT_EQ(refusal(good), "");
  map.heads = 2;
  ASSERT_EQ(refusal(good), "");
  using A = ForwardArguments;
  using M = TileMapView;
  expect_refused<A>(good, "packs 8 query heads into a row tile, which must divide",
                    [](A& a, M&) { a.shape.kv_heads = 8; });
  expect_refused<A>(good, "got 32 query heads, 2 KV heads, 32 mask heads", [](A&, M& m) { m.heads = 32; });
  expect_refused<A>(good, "packs 1 query heads into 24 rows", [](A&, M& m) { m.packed_heads = 1; });
  expect_refused<A>(good, "tiles of 24x64", [](A&, M& m) { m.block_n = 64; });
  const std::uint64_t words[4] = {};
  good.arrival = ChunkArrival{words, 1, 64, 100, 0, 100};
  EXPECT_EQ(refusal(good), "");
  BackwardArguments backward;
  backward.shape = good.shape, backward.map = &map, backward.workspace = memory;
  backward.q = tensor;
  EXPECT_NE(refusal(backward).find("tiles of 24x80"), std::string::npos) << refusal(backward);
}

TEST(Validate, backward_names_what_is_wrong) {
  const TileMapView map = map_of(backward_tile());
  BackwardArguments good;
  good.shape = shape, good.map = &map, good.workspace = memory, good.lse = reinterpret_cast<const float*>(memory);
  good.q = good.k = good.v = good.out = good.dout = tensor;
  good.dq = good.dk = good.dv = {memory, DType::bf16, tensor.strides};
  ASSERT_EQ(refusal(good), "");
  expect_common_refusals(good);
  using A = BackwardArguments;
  using M = TileMapView;
  expect_refused<A>(good, "scale is 1e-31", [](A& a, M&) { a.scale = 1e-31F; });
  expect_refused<A>(good, "scale is 1e+31", [](A& a, M&) { a.scale = 1e31F; });
  expect_refused<A>(good, "workspace", [](A& a, M&) { a.workspace = memory + 16; });
  expect_refused<A>(good, "completion", [](A& a, M&) { a.completion = ChunkCompletion{nullptr, 64}; });
  expect_refused<A>(good, "dout is null", [](A& a, M&) { a.dout.data = nullptr; });
  expect_refused<A>(good, "dk has another dtype", [](A& a, M&) { a.dk.dtype = DType::f16; });
}

}  // namespace
}  // namespace flashmask::sm90
