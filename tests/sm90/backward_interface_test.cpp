// What the public backward refuses, before any work: needs no GPU.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "flashmask/error.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/tile_map/view.hpp"

namespace flashmask::sm90 {
namespace {

/// Text of the error that validate() throws for these arguments, empty if none. Needs no GPU.
std::string refusal(const BackwardArguments& a) {
  try {
    validate(a);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(BackwardInterface, wrong_arguments_are_refused_by_name) {
  TileMapView map{};
  map.rows = 100, map.columns = 200, map.batch = 1, map.heads = 1;
  map.block_m = 64, map.block_n = 128, map.row_tiles = 2, map.column_blocks = 2;
  alignas(256) static std::byte memory[512];
  const TensorView tensor{memory, DType::bf16, {4096, 256, 128, 1}};
  BackwardArguments good;
  good.shape = {2, 100, 200, 4, 2, 128}, good.map = &map, good.workspace = memory;
  good.lse = reinterpret_cast<const float*>(memory);
  good.q = good.k = good.v = good.out = good.dout = tensor;
  good.dq = good.dk = good.dv = {memory, DType::bf16, tensor.strides};
  ASSERT_EQ(refusal(good), "");
  const auto refused = [&](const char* expected, auto&& spoil) {
    BackwardArguments a = good;
    TileMapView other = map;
    a.map = &other;
    spoil(a, other);
    EXPECT_NE(refusal(a).find(expected), std::string::npos) << "expected " << expected << ", got: " << refusal(a);
  };
  refused("kv_heads", [](auto& a, auto&) { a.shape.kv_heads = 3; });
  refused("head_dim", [](auto& a, auto&) { a.shape.head_dim = 136; });
  refused("head_dim", [](auto& a, auto&) { a.shape.head_dim = 60; });
  refused("map is null", [](auto& a, auto&) { a.map = nullptr; });
  refused("64x128", [](auto&, auto& m) { m.block_m = 192; });
  refused("rows", [](auto&, auto& m) { m.rows = 101; });
  refused("mask batch", [](auto&, auto& m) { m.batch = 3; });
  refused("mask heads", [](auto&, auto& m) { m.heads = 3; });
  refused("scale", [](auto& a, auto&) { a.scale = -1.0F; });
  refused("workspace", [](auto& a, auto&) { a.workspace = memory + 16; });
  refused("completion", [](auto& a, auto&) { a.completion = ChunkCompletion{nullptr, 64}; });
  refused("lse is null", [](auto& a, auto&) { a.lse = nullptr; });
  refused("dout is null", [](auto& a, auto&) { a.dout.data = nullptr; });
  refused("dk has another dtype", [](auto& a, auto&) { a.dk.dtype = DType::f16; });
  refused("bf16 and f16", [](auto& a, auto&) { a.q.dtype = DType::f32; });
  refused("v: the stride", [](auto& a, auto&) { a.v.strides[3] = 2; });
  refused("aligned to 16", [](auto& a, auto&) { a.q.data = memory + 8; });
  refused("multiple of 8", [](auto& a, auto&) { a.dv.strides[1] = 130; });
}

}  // namespace
}  // namespace flashmask::sm90
