// What forward() and backward() on a Hopper GPU refuse, before any work: needs no GPU and no CUDA.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "flashmask/builders.hpp"
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
/// Addresses only: nothing is read.
alignas(256) std::byte memory[16][256];
/// A tensor of its own memory, for up to 8 heads of 128.
TensorView tensor_at(int place) {
  return {memory[place], DType::bf16, {std::int64_t{1} << 20, 1024, 128, 1}};
}
MutableTensorView output_at(int place) {
  return {memory[place], DType::bf16, tensor_at(place).strides};
}

/// Refused with a text that contains `expected` once `spoil(arguments, map)` has touched a good call.
template <typename Arguments>
void expect_refused(const Arguments& good, const char* expected, void (*spoil)(Arguments&, TileMapView&)) {
  Arguments a = good;
  TileMapView map = *good.map;
  a.map = &map;
  spoil(a, map);
  EXPECT_NE(refusal(a).find(expected), std::string::npos) << "expected " << expected << ", got: " << refusal(a);
}

/// A good forward call of `shape`; its map is the caller's.
ForwardArguments good_forward(const TileMapView& map) {
  ForwardArguments a;
  a.shape = shape, a.map = &map, a.workspace = memory[0], a.lse = reinterpret_cast<float*>(memory[1]);
  a.q = tensor_at(2), a.k = tensor_at(3), a.v = tensor_at(4), a.out = output_at(5);
  return a;
}
BackwardArguments good_backward(const TileMapView& map) {
  BackwardArguments a;
  a.shape = shape, a.map = &map, a.workspace = memory[0], a.lse = reinterpret_cast<const float*>(memory[1]);
  a.workspace_bytes = std::size_t{1} << 40;
  a.q = tensor_at(2), a.k = tensor_at(3), a.v = tensor_at(4), a.out = tensor_at(5), a.dout = tensor_at(6);
  a.dq = output_at(7), a.dk = output_at(8), a.dv = output_at(9);
  return a;
}

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

template <typename Arguments>
void expect_shape_refusals(const Arguments& good) {
  using A = Arguments;
  using M = TileMapView;
  expect_refused<A>(good, "shape.batch is -1: it must lie in [0,", [](A& a, M&) { a.shape.batch = -1; });
  expect_refused<A>(good, "shape.query_heads is 0: it must lie in [1,", [](A& a, M&) { a.shape.query_heads = 0; });
  expect_refused<A>(good, "shape.kv_heads is 0: it must lie in [1,", [](A& a, M&) { a.shape.kv_heads = 0; });
  expect_refused<A>(good, "kv_heads", [](A& a, M&) { a.shape.kv_heads = 3; });
  expect_refused<A>(good, "head_dim", [](A& a, M&) { a.shape.head_dim = 136; });
  expect_refused<A>(good, "head_dim", [](A& a, M&) { a.shape.head_dim = 60; });
  // Extents whose products would leave an int64.
  expect_refused<A>(good, "shape.query_heads is",
                    [](A& a, M&) { a.shape.query_heads = a.shape.kv_heads = most / 4 + 1; });
  expect_refused<A>(good, "shape.batch is", [](A& a, M&) { a.shape.batch = std::int64_t{1} << 62; });
  expect_refused<A>(good, "shape.batch is", [](A& a, M&) { a.shape.batch = most; });
  expect_refused<A>(good, "shape.query_heads is", [](A& a, M&) { a.shape.query_heads = a.shape.kv_heads = most; });
  expect_refused<A>(good, "shape.rows is 2147483647", [](A& a, M&) { a.shape.rows = 2147483647; });
  expect_refused<A>(good, "shape.columns is", [](A& a, M&) { a.shape.columns = most; });
  expect_refused<A>(good, "exceeds 2^31", [](A& a, M&) { a.shape.batch = std::int64_t{1} << 29; });
  expect_refused<A>(good, "exceeds 2^31", [](A& a, M&) { a.shape.rows = 1 << 30, a.shape.batch = 32; });
  expect_refused<A>(good, "exceeds 2^31", [](A& a, M&) {  // a mask of so many heads has its vectors all the same
    a.shape.batch = 0, a.shape.columns = 1 << 30, a.shape.query_heads = a.shape.kv_heads = 1 << 30;
  });
}

template <typename Arguments>
void expect_map_refusals(const Arguments& good) {
  using A = Arguments;
  using M = TileMapView;
  expect_refused<A>(good, "map is null", [](A& a, M&) { a.map = nullptr; });
  expect_refused<A>(good, "tiles of 128x128", [](A&, M& m) { m.block_m = 128, m.block_n = 128; });
  expect_refused<A>(good, "packs 8 query heads", [](A&, M& m) { m.packed_heads = 8; });
  expect_refused<A>(good, "101 rows", [](A&, M& m) { m.rows = 101; });
  expect_refused<A>(good, "201 columns", [](A&, M& m) { m.columns = 201; });
  expect_refused<A>(good, "mask batch", [](A&, M& m) { m.batch = 3; });
  expect_refused<A>(good, "mask heads", [](A&, M& m) { m.heads = 3; });
  expect_refused<A>(good, "exceeds 2^31", [](A&, M& m) { m.row_tiles = 1 << 30; });
  expect_refused<A>(good, "exceeds 2^31", [](A&, M& m) { m.column_blocks = 1 << 30; });
}

template <typename Arguments>
void expect_tensor_refusals(const Arguments& good) {
  using A = Arguments;
  using M = TileMapView;
  expect_refused<A>(good, "bf16 and f16 tensors, q is f32", [](A& a, M&) { a.q.dtype = DType::f32; });
  expect_refused<A>(good, "q is unknown (DType 9)", [](A& a, M&) { a.q.dtype = static_cast<DType>(9); });
  expect_refused<A>(good, "v has another dtype than q, f16 and bf16", [](A& a, M&) { a.v.dtype = DType::f16; });
  expect_refused<A>(good, "k is null", [](A& a, M&) { a.k.data = nullptr; });
  expect_refused<A>(good, "v: the stride of head_dim", [](A& a, M&) { a.v.strides[3] = 2; });
  expect_refused<A>(good, "q: the data pointer must be aligned to 16", [](A& a, M&) { a.q.data = memory[2] + 8; });
  expect_refused<A>(good, "lse: the data pointer must be aligned to 4",
                    [](A& a, M&) { a.lse = reinterpret_cast<float*>(memory[1] + 2); });
  expect_refused<A>(good, "v: stride 130 of axis 1 (position) must be a multiple",
                    [](A& a, M&) { a.v.strides[1] = 130; });
  expect_refused<A>(good, "k: stride -512 of axis 1 (position) must be positive",
                    [](A& a, M&) { a.k.strides[1] = -512; });
  expect_refused<A>(good, "k: stride 0 of axis 0 (batch) must be positive", [](A& a, M&) { a.k.strides[0] = 0; });
  // An extent of two is followed.
  expect_refused<A>(good, "k: stride 12 of axis 2 (head)", [](A& a, M&) { a.k.strides[2] = 12; });
  expect_refused<A>(good, "q: stride 12 of axis 0 (batch)", [](A& a, M&) { a.q.strides[0] = 12; });
  for (const std::int64_t stride : {std::int64_t{1} << 39, std::int64_t{1} << 40, std::int64_t{1} << 62, most & ~7}) {
    for (const std::size_t axis : {0U, 1U, 2U}) {
      A a = good;
      a.q.strides[axis] = stride;
      EXPECT_NE(refusal(a).find("below 2^39"), std::string::npos)
          << stride << " of axis " << axis << ": " << refusal(a);
    }
  }
  // Strides and extents whose product leaves an int64, or byte offsets, though each is legal.
  for (const std::int32_t columns : {1 << 27, 1 << 23}) {
    TileMapView map = *good.map;
    map.columns = columns;
    A a = good;
    a.map = &map, a.shape.batch = 1, a.shape.columns = columns, a.k.strides[1] = (std::int64_t{1} << 39) - 8;
    EXPECT_NE(refusal(a).find("leaves the address space"), std::string::npos) << columns << ": " << refusal(a);
  }
  A one = good;  // strides over extents of one are never followed
  one.shape.batch = 1, one.q.strides[0] = 3;
  EXPECT_EQ(refusal(one), "");
  // Keys have their own heads: a stride over one KV head is not followed either.
  one = good, one.shape.kv_heads = 1, one.k.strides[2] = 3;
  EXPECT_EQ(refusal(one), "");
  one = good, one.shape.kv_heads = 1, one.q.strides[2] = 3;
  EXPECT_NE(refusal(one).find("q: stride 3"), std::string::npos) << refusal(one);
}

/// What both passes ask.
template <typename Arguments>
void expect_common_refusals(const Arguments& good) {
  using A = Arguments;
  using M = TileMapView;
  expect_shape_refusals(good);
  expect_map_refusals(good);
  expect_tensor_refusals(good);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float scale : {-1.0F, 0.0F, 0.9e-20F, 1.1e8F, 3e38F, infinity, std::numeric_limits<float>::quiet_NaN()}) {
    A a = good;
    a.scale = scale;
    EXPECT_NE(refusal(a).find("the kernels take 1e-20 to 1e+08"), std::string::npos) << scale << ": " << refusal(a);
  }
  for (const float scale : {1e-20F, 1e8F}) {
    A a = good;
    a.scale = scale;
    EXPECT_EQ(refusal(a), "") << scale;
  }
  expect_refused<A>(good, "workspace", [](A& a, M&) { a.workspace = nullptr; });
  expect_refused<A>(good, "workspace", [](A& a, M&) { a.workspace = memory[0] + 8; });
  expect_refused<A>(good, "lse is null", [](A& a, M&) { a.lse = nullptr; });
}

/// `output(arguments)` is refused where elements overlap, and with the memory of something else.
template <typename Arguments>
void expect_output_refusals(const Arguments& good, const std::string& name, MutableTensorView& (*output)(Arguments&)) {
  const auto expect = [&](const Arguments& a, const std::string& expected) {
    EXPECT_NE(refusal(a).find(expected), std::string::npos) << "expected " << expected << ", got: " << refusal(a);
  };
  Arguments a = good;
  output(a).data = nullptr;
  expect(a, name + " is null");
  a = good, output(a).dtype = DType::f16;
  expect(a, name + " has another dtype");
  a = good, output(a).strides[1] = 12;
  expect(a, name + ": stride 12");
  using Strides = std::array<std::int64_t, 4>;
  for (const Strides& strides : {Strides{1 << 20, 8, 128, 1}, Strides{1 << 20, 128, 128, 1}, Strides{8, 1024, 128, 1},
                                 Strides{1024, 1024, 128, 1}, Strides{1 << 20, 1024, 64, 1}}) {
    a = good, output(a).strides = strides;
    expect(a, name + ": strides");
  }
  a = good, output(a).strides = {1 << 20, 128, 1 << 16, 1};  // heads outside positions, in this order
  EXPECT_EQ(refusal(a), "");
  a = good, output(a).data = const_cast<void*>(good.k.data);
  expect(a, name + " and k are the same memory");
  a = good, output(a).data = const_cast<void*>(good.q.data);
  expect(a, name + " and q are the same memory");
  a = good, output(a).data = const_cast<float*>(good.lse);
  expect(a, "are the same memory");
  a = good, output(a).data = good.workspace;
  expect(a, "are the same memory");
}

TEST(Validate, forward_names_what_is_wrong) {
  const TileMapView map = map_of(forward_tile(128));
  ForwardArguments good = good_forward(map);
  ASSERT_EQ(refusal(good), "");
  expect_common_refusals(good);
  using A = ForwardArguments;
  using M = TileMapView;
  expect_output_refusals<A>(good, "out", [](A& a) -> MutableTensorView& { return a.out; });
  expect_refused<A>(good, "grid", [](A& a, M&) { a.grid = -1; });
}

TEST(Validate, an_arrival_names_what_is_wrong) {
  const TileMapView map = map_of(forward_tile(128));
  ForwardArguments good = good_forward(map);
  using A = ForwardArguments;
  using M = TileMapView;
  const std::uint64_t words[4] = {};
  good.arrival = ChunkArrival{words, 1, 64, 100, 0, 100};
  ASSERT_EQ(refusal(good), "");
  expect_refused<A>(good, "arrival.words is null", [](A& a, M&) { a.arrival->words = nullptr; });
  expect_refused<A>(good, "arrival.words: the data pointer must be aligned to 8",
                    [](A& a, M&) { a.arrival->words = reinterpret_cast<const std::uint64_t*>(memory[10] + 4); });
  expect_refused<A>(good, "arrival.chunk_columns is 0", [](A& a, M&) { a.arrival->chunk_columns = 0; });
  expect_refused<A>(good, "arrival.chunk_columns is 2147483648",
                    [](A& a, M&) { a.arrival->chunk_columns = std::int64_t{1} << 31; });
  expect_refused<A>(good, "local columns", [](A& a, M&) { a.arrival->end_local_column = 201; });
  expect_refused<A>(good, "local columns", [](A& a, M&) { a.arrival->first_local_column = -1; });
  expect_refused<A>(good, "[101, 100)", [](A& a, M&) { a.arrival->first_local_column = 101; });
}

TEST(Validate, a_packed_map_serves_calls_whose_heads_eight_divides) {
  TileMapView map = map_of({24, 80});
  map.packed_heads = 8;
  ForwardArguments good = good_forward(map);
  good.shape = {2, 100, 200, 32, 2, 128};
  good.out.strides = {std::int64_t{1} << 20, 4096, 128, 1};
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
  BackwardArguments backward = good_backward(map);
  backward.shape = good.shape;
  EXPECT_NE(refusal(backward).find("tiles of 24x80"), std::string::npos) << refusal(backward);
}

TEST(Validate, backward_names_what_is_wrong) {
  const TileMapView map = map_of(backward_tile());
  const BackwardArguments good = good_backward(map);
  ASSERT_EQ(refusal(good), "");
  expect_common_refusals(good);
  using A = BackwardArguments;
  using M = TileMapView;
  expect_output_refusals<A>(good, "dq", [](A& a) -> MutableTensorView& { return a.dq; });
  expect_output_refusals<A>(good, "dk", [](A& a) -> MutableTensorView& { return a.dk; });
  expect_output_refusals<A>(good, "dv", [](A& a) -> MutableTensorView& { return a.dv; });
  expect_refused<A>(good, "dk and dv are the same memory", [](A& a, M&) { a.dv.data = a.dk.data; });
  expect_refused<A>(good, "workspace", [](A& a, M&) { a.workspace = memory[0] + 16; });
  TileMapView per_head = map;
  per_head.batch = static_cast<std::int32_t>(shape.batch),
  per_head.heads = static_cast<std::int32_t>(shape.query_heads);
  TileMapView without_rows = map;
  without_rows.rows = without_rows.row_tiles = 0;
  for (const auto& [view, deterministic] :
       {std::pair{&map, false}, {&map, true}, {&per_head, false}, {&without_rows, false}}) {
    A exact = good;
    exact.map = view, exact.shape.rows = view->rows, exact.deterministic = deterministic;
    exact.workspace_bytes = backward_workspace_bytes(
        exact.shape, {view->batch, view->heads, exact.shape.rows, exact.shape.columns}, deterministic);
    EXPECT_EQ(refusal(exact), "");
    --exact.workspace_bytes;
    const std::string text = "workspace_bytes is " + std::to_string(exact.workspace_bytes) + ": this call needs " +
                             std::to_string(exact.workspace_bytes + 1);
    EXPECT_NE(refusal(exact).find(text), std::string::npos) << refusal(exact);
  }
  expect_refused<A>(good, "dout is null", [](A& a, M&) { a.dout.data = nullptr; });
  expect_refused<A>(good, "out is null", [](A& a, M&) { a.out.data = nullptr; });
  expect_refused<A>(good, "order: the data pointer must be aligned to 4",
                    [](A& a, M&) { a.order = reinterpret_cast<const std::int32_t*>(memory[10] + 2); });
  // The batch rows of k have their own number of positions.
  expect_refused<A>(good, "dk: strides", [](A& a, M&) { a.dk.strides[0] = 102400; });
  A same = good;
  same.dq.strides[0] = 102400;
  EXPECT_EQ(refusal(same), "");
}

TEST(Validate, a_completion_names_what_is_wrong) {
  const TileMapView map = map_of(backward_tile());
  BackwardArguments good = good_backward(map);
  using A = BackwardArguments;
  using M = TileMapView;
  std::uint32_t counts[4] = {};
  good.completion = ChunkCompletion{counts, 64};
  ASSERT_EQ(refusal(good), "");
  expect_refused<A>(good, "completion.counts is null", [](A& a, M&) { a.completion->counts = nullptr; });
  expect_refused<A>(good, "completion.counts: the data pointer must be aligned to 4",
                    [](A& a, M&) { a.completion->counts = reinterpret_cast<std::uint32_t*>(memory[10] + 2); });
  expect_refused<A>(good, "completion.chunk_columns is -1", [](A& a, M&) { a.completion->chunk_columns = -1; });
  expect_refused<A>(good, "completion.chunk_columns is 2147483648",
                    [](A& a, M&) { a.completion->chunk_columns = std::int64_t{1} << 31; });
}

TEST(Validate, tiles_of_a_pair_are_for_calls_that_take_them) {
  const TileMapView map = map_of(backward_tile());
  const BackwardArguments good = good_backward(map);
  using A = BackwardArguments;
  using M = TileMapView;
  A pairs = good;
  TileMapView wide = map_of({64, 256});
  pairs.map = &wide;
  for (const std::int64_t kv_heads : {2, 4}) {
    pairs.shape.kv_heads = kv_heads;
    EXPECT_EQ(refusal(pairs), "") << kv_heads;
  }
  expect_refused<A>(pairs,
                    "tiles of 64x256, this call (head_dim 128) takes 64x128; build it with one of "
                    "backward_tiles(",
                    [](A& a, M&) { a.deterministic = true; });
  A narrow = pairs;
  for (const std::int64_t head_dim : {32, 40, 64}) {
    narrow.shape.head_dim = head_dim;
    EXPECT_EQ(refusal(narrow), "") << head_dim;
  }
}

TEST(BackwardTiles, dense_masks_take_pairs_and_short_documents_do_not) {
  const AttentionShape calls{4, 8192, 8192, 16, 16, 128};
  std::int64_t length = 128;  // of a document
  const auto chosen = [&](const char* name, const AttentionShape& s, bool deterministic = false) {
    masks::BuilderOptions options;
    const auto documents = static_cast<std::size_t>(s.rows / length);
    options.rows = s.rows, options.documents = masks::documents_of(std::vector<std::int64_t>(documents, length));
    return choose_backward_tile(masks::build(name, options), s, deterministic).block_n;
  };
  for (const char* name : {"full", "causal"}) EXPECT_EQ(chosen(name, calls), 256) << name;
  for (const char* name : {"document", "causal_document"}) EXPECT_EQ(chosen(name, calls), 128) << name;
  EXPECT_EQ(chosen("full", calls, true), 128);
  const AttentionShape narrow{4, 8192, 8192, 16, 16, 64};  // gains less
  EXPECT_EQ(chosen("full", narrow), 256);
  EXPECT_EQ(chosen("causal", narrow), 128);
  for (const std::int64_t each : {256, 1024, 4096}) {  // a block of a pair takes as long as two thirds of a tile more
    length = each;
    EXPECT_EQ(chosen("document", narrow), each < 4096 ? 128 : 256) << each;
    EXPECT_EQ(chosen("document", calls), 256) << each;
  }
  EXPECT_EQ(chosen("full", {1, 8192, 8192, 64, 1, 128}), 256);  // split groups
  EXPECT_EQ(chosen("full", {16, 8192, 8192, 64, 2, 128}), 256);
  // Grouped heads: blocks of unequal weight gain more.
  length = 1024;
  const AttentionShape grouped{2, 8192, 8192, 64, 8, 128}, small{2, 8192, 8192, 32, 8, 128};
  EXPECT_EQ(chosen("causal_document", calls), 128);
  for (const AttentionShape& s : {grouped, small}) EXPECT_EQ(chosen("causal_document", s), 256);
  length = 128;
  EXPECT_EQ(chosen("causal_document", grouped), 128) << "a third more rows";
  for (const AttentionShape& s : {calls, grouped})
    EXPECT_EQ(chosen("global_sliding_window", s), 128) << "few heavy blocks";
  // Padding that nobody sees does not make equal blocks unequal.
  ColumnMask padded = masks::build("sliding_window", {.rows = 8192});
  for (std::int64_t j = 5700; j < 8192; ++j) padded.set(0, 0, j, {0, 8192, 0, 0});
  EXPECT_EQ(choose_backward_tile(padded, grouped).block_n, 128);
  EXPECT_EQ(choose_backward_tile(ColumnMask({0, 1, 9, 1}), {0, 9, 1, 1 << 30, 1, 128}).block_n, 128);
  EXPECT_THROW(choose_backward_tile(masks::full({1, 1, 100, 100}), {1, 101, 100, 8, 8, 128}), Error);
}

}  // namespace
}  // namespace flashmask::sm90
