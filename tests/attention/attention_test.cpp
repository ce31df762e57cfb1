// What a call refuses and how it says so, empty extents, strides, and merging.
#include "flashmask/attention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "flashmask/builders.hpp"
#include "flashmask/error.hpp"
#include "support/attention_call.hpp"

namespace flashmask {
namespace {

using std::int64_t;
using testing::Call;

Call small_call(DType dtype = DType::f32) {
  const AttentionShape shape{.rows = 6, .columns = 5, .query_heads = 4, .kv_heads = 2, .head_dim = 8};
  return {shape, masks::causal({1, 1, 6, 5}), dtype};
}

void expect_refused(const std::function<void()>& f, ErrorCode code, const std::string& says) {
  try {
    f();
    ADD_FAILURE() << "not refused; expected an error that says: " << says;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << "got: " << e.what() << "\nwanted: " << says;
  }
}

/// The forward refuses `change`, naming what is wrong, before any output is touched.
template <typename F>
void forward_refuses(const F& change, const std::string& says, ErrorCode code = ErrorCode::invalid_argument) {
  Call call = small_call();
  ForwardArguments arguments = call.forward_arguments();
  change(arguments);
  const auto before = call.result_bytes();
  expect_refused([&] { forward(arguments); }, code, says);
  EXPECT_EQ(call.result_bytes(), before);
}
template <typename F>
void backward_refuses(const F& change, const std::string& says) {
  Call call = small_call();
  BackwardArguments arguments = call.backward_arguments();
  change(arguments);
  expect_refused([&] { backward(arguments); }, ErrorCode::invalid_argument, says);
}

TEST(Validate, shapes) {
  forward_refuses([](auto& a) { a.shape.batch = -1; }, "shape.batch is -1");
  forward_refuses([](auto& a) { a.shape.rows = -1; }, "shape.rows is -1");
  forward_refuses([](auto& a) { a.shape.columns = int64_t{1} << 31; }, "shape.columns is 2147483648");
  forward_refuses([](auto& a) { a.shape.query_heads = 0; }, "shape.query_heads is 0");
  forward_refuses([](auto& a) { a.shape.kv_heads = 3; }, "shape.kv_heads is 3");
  forward_refuses([](auto& a) { a.shape.kv_heads = 0; }, "shape.kv_heads is 0");
  forward_refuses([](auto& a) { a.shape.head_dim = 0; }, "shape.head_dim is 0");
  forward_refuses([](auto& a) { a.shape.head_dim = 257; }, "supports 1 to 256", ErrorCode::unsupported);
}

TEST(Validate, masks_and_maps) {
  forward_refuses([](auto& a) { a.mask.mask = nullptr; }, "mask.mask is null");
  const ColumnMask wrong_rows({1, 1, 7, 5});
  const ColumnMask wrong_columns({1, 1, 6, 4});
  const ColumnMask wrong_batch({2, 1, 6, 5});
  const ColumnMask wrong_heads({1, 3, 6, 5});
  forward_refuses([&](auto& a) { a.mask.mask = &wrong_rows; }, "7 rows");
  forward_refuses([&](auto& a) { a.mask.mask = &wrong_columns; }, "4 columns");
  forward_refuses([&](auto& a) { a.mask.mask = &wrong_batch; }, "batch 2");
  forward_refuses([&](auto& a) { a.mask.mask = &wrong_heads; }, "3 heads");
  const TileMap other_map = TileMap::build(ColumnMask({1, 1, 64, 5}), {64, 64});
  forward_refuses([&](auto& a) { a.mask.map = &other_map; }, "mask.map was built for");
}

TEST(Validate, pointers_dtypes_scale_and_threads) {
  forward_refuses([](auto& a) { a.q.data = nullptr; }, "q.data is null");
  forward_refuses([](auto& a) { a.out.data = nullptr; }, "out.data is null");
  forward_refuses([](auto& a) { a.lse = nullptr; }, "lse is null");
  forward_refuses([](auto& a) { a.k.dtype = DType::bf16; }, "k is bf16 but q is f32");
  forward_refuses([](auto& a) { a.scale = 0.0F; }, "scale is 0");
  forward_refuses([](auto& a) { a.scale = std::nanf(""); }, "scale is nan");
  forward_refuses([](auto& a) { a.scale = std::numeric_limits<float>::infinity(); }, "scale is inf");
  forward_refuses([](auto& a) { a.threads = -1; }, "threads is -1");
  backward_refuses([](auto& a) { a.dout.data = nullptr; }, "dout.data is null");
  backward_refuses([](auto& a) { a.out.dtype = DType::f16; }, "out is f16");
  backward_refuses([](auto& a) { a.dv.data = nullptr; }, "dv.data is null");
  backward_refuses([](auto& a) { a.lse = nullptr; }, "lse is null");
}

TEST(Validate, outputs_that_overlap_or_run_backwards) {
  forward_refuses([](auto& a) { a.out.strides[1] = -a.out.strides[1]; }, "out.strides");
  forward_refuses([](auto& a) { a.out.strides[2] = 0; }, "out.strides");
  forward_refuses([](auto& a) { a.out.strides[2] = 7; }, "no two elements overlap");
  backward_refuses([](auto& a) { a.dk.strides[1] = 8; }, "dk.strides");
  backward_refuses([](auto& a) { a.dq.strides[3] = 0; }, "dq.strides");
  forward_refuses([](auto& a) { a.q.strides[1] = std::numeric_limits<int64_t>::max() / 2; }, "address space");
}

TEST(Validate, inputs_may_be_broadcast) {
  Call call = small_call();
  ForwardArguments arguments = call.forward_arguments();
  arguments.k.strides[2] = 0;  // both KV heads share their keys
  EXPECT_NO_THROW(forward(arguments));
  arguments.v.strides[0] = arguments.v.strides[1] = 0;  // all batch rows and tokens one value
  EXPECT_NO_THROW(forward(arguments));
}

TEST(Validate, forgotten_strides_of_inputs_are_no_broadcast) {
  forward_refuses([](auto& a) { a.q.strides = {}; }, "q.strides = [0, 0, 0, 0]");
  forward_refuses([](auto& a) { a.v.strides = {}; }, "not one is set; set them");
  forward_refuses([](auto& a) { a.k.strides[3] = 0; }, "that of head_dim must not be 0");
  backward_refuses([](auto& a) { a.dout.strides = {}; }, "copy a tensor that a framework expanded");
  backward_refuses([](auto& a) { a.out.strides = {}; }, "out.strides = [0, 0, 0, 0]");
  Call one({.rows = 1, .columns = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 1}, ColumnMask({1, 1, 1, 1}),
           DType::f32);
  ForwardArguments arguments = one.forward_arguments();
  arguments.q.strides = {};  // there is nothing to step over
  EXPECT_NO_THROW(forward(arguments));
}

TEST(Attention, no_columns_gives_dead_rows_and_no_rows_gives_zero_gradients) {
  Call no_columns({.rows = 70, .columns = 0, .query_heads = 2, .kv_heads = 1, .head_dim = 4}, ColumnMask({1, 1, 70, 0}),
                  DType::bf16);
  no_columns.run();
  for (const float lse : no_columns.lse) EXPECT_EQ(lse, -std::numeric_limits<float>::infinity());
  for (const double x : no_columns.out.values()) EXPECT_EQ(x, 0.0);
  for (const double x : no_columns.dq.values()) EXPECT_EQ(x, 0.0);
  Call no_rows({.rows = 0, .columns = 70, .query_heads = 2, .kv_heads = 1, .head_dim = 4}, ColumnMask({1, 1, 0, 70}),
               DType::bf16);
  no_rows.run();
  for (const double x : no_rows.dk.values()) EXPECT_EQ(x, 0.0);
  for (const double x : no_rows.dv.values()) EXPECT_EQ(x, 0.0);
}

TEST(Attention, a_nan_query_poisons_its_own_row_alone) {
  Call call = small_call();
  call.q.set(0, 3, 1, 2, std::nanf(""));
  forward(call.forward_arguments());
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t h = 0; h < 4; ++h) {
      EXPECT_EQ(std::isnan(call.out.get(0, i, h, 0)), i == 3 && h == 1) << i << ',' << h;
      EXPECT_EQ(std::isnan(call.lse_at(0, h, i)), i == 3 && h == 1) << i << ',' << h;
    }
  }
}

TEST(Attention, rows_on_both_sides_of_two_runs_are_seen) {
  const AttentionShape shape{.rows = 200, .columns = 150, .query_heads = 1, .kv_heads = 1, .head_dim = 8};
  ColumnMask mask({1, 1, 200, 150});
  for (std::int32_t j = 0; j < 150; ++j) mask.set(0, 0, j, {100 + j / 3, 151 + j / 9, j / 7, 50 + j / 4});
  Call call(shape, mask, DType::f32);
  call.run();
  testing::expect_matches_oracle(call);
  testing::expect_count_probe(call);
}

TEST(Attention, tiles_of_whole_pieces_change_no_bit) {
  const AttentionShape shape{.rows = 300, .columns = 300, .query_heads = 2, .kv_heads = 1, .head_dim = 16};
  const std::vector<int64_t> lengths{70, 90, 5, 135};
  Call call(shape, masks::share_question({1, 1, 300, 300}, masks::documents_of(lengths)), DType::bf16);
  call.run();
  const auto own_map = call.result_bytes();
  for (const TileShape tile : {TileShape{64, 64}, TileShape{128, 128}, TileShape{64, 256}, TileShape{192, 64}}) {
    const TileMap map = TileMap::build(call.mask, tile);
    call.map = &map;
    call.run();
    EXPECT_EQ(call.result_bytes(), own_map) << tile.block_m << 'x' << tile.block_n;
  }
}

TEST(Attention, large_scores_do_not_overflow) {
  Call call = small_call();
  call.scale = 1e4F;
  call.run();
  testing::expect_matches_oracle(call);
}

TEST(MergeOutputs, two_disjoint_column_sets_give_the_whole) {
  const AttentionShape shape{.batch = 2, .rows = 70, .columns = 90, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
  const ColumnMask whole = masks::causal({2, 1, 70, 90});
  const auto part = [&](bool first) {
    ColumnMask mask = whole;
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t j = 0; j < 90; ++j) {
        if ((j < 37) != first) mask.set(b, 0, j, {0, 70, 0, 0});
      }
    }
    return mask;
  };
  Call all(shape, whole, DType::f32);
  Call a(shape, part(true), DType::f32);
  Call b(shape, part(false), DType::f32);
  for (Call* call : {&all, &a, &b}) forward(call->forward_arguments());
  merge_outputs(shape, a.out.view(), a.lse.data(), b.out.view(), b.lse.data(), a.out.view(), a.lse.data());
  const auto deviation_out = deviation(a.out.values(), all.out.values());
  EXPECT_LE(deviation_out.error, 1e-6) << "index " << deviation_out.index;
  for (std::size_t i = 0; i < all.lse.size(); ++i) EXPECT_NEAR(a.lse[i], all.lse[i], 1e-6);
}

TEST(MergeOutputs, dead_parts_weigh_nothing_and_bad_calls_are_refused) {
  const AttentionShape shape{.rows = 1, .columns = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 2};
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> live{3, 4};
  const std::vector<float> dead{std::nanf(""), std::nanf("")};
  std::vector<float> out(2, std::nanf(""));
  float lse = std::nanf("");
  const float live_lse = 0.5F;
  const float dead_lse = -inf;
  const auto view = [](const std::vector<float>& t) { return TensorView{t.data(), DType::f32, {2, 2, 2, 1}}; };
  const MutableTensorView to{out.data(), DType::f32, {2, 2, 2, 1}};
  merge_outputs(shape, view(live), &live_lse, view(dead), &dead_lse, to, &lse);
  EXPECT_EQ(out, live);
  EXPECT_EQ(lse, live_lse);
  merge_outputs(shape, view(dead), &dead_lse, view(dead), &dead_lse, to, &lse);
  EXPECT_EQ(out, (std::vector<float>{0, 0}));
  EXPECT_EQ(lse, -inf);
  expect_refused(
      [&] {
        merge_outputs(shape, {live.data(), DType::bf16, {}}, &live_lse, view(dead), &dead_lse, to, &lse);
      },
      ErrorCode::invalid_argument, "merge_outputs takes f32");
  expect_refused([&] { merge_outputs(shape, view(live), nullptr, view(dead), &dead_lse, to, &lse); },
                 ErrorCode::invalid_argument, "null pointer");
}

TEST(Tolerance, units_in_the_last_place) {
  EXPECT_EQ(ulp(1.0, DType::f32), 0x1p-23);
  EXPECT_EQ(ulp(1.5, DType::f16), 0x1p-10);
  EXPECT_EQ(ulp(-2.0, DType::bf16), 0x1p-6);
  EXPECT_EQ(ulp(0.0, DType::f16), 0x1p-24);
  EXPECT_EQ(ulp(0x1p-20, DType::f16), 0x1p-24);
}

TEST(Tolerance, an_infinity_in_the_wrong_place_is_infinitely_wrong) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> expected{1.0, -inf, 2.0};
  EXPECT_EQ(deviation(expected, expected).error, 0.0);
  const std::vector<double> wrong{1.0, 5.0, 2.0};
  EXPECT_EQ(deviation(wrong, expected).error, inf);
  EXPECT_EQ(deviation(wrong, expected).index, 1);
  const std::vector<double> poisoned{std::nan(""), -inf, 2.0};
  EXPECT_EQ(deviation(poisoned, expected).error, inf);
  EXPECT_EQ(deviation(poisoned, expected).index, 0);
}

TEST(Tolerance, a_column_five_percent_off_and_a_lost_tile_of_dk_are_caught) {
  const AttentionShape shape{.rows = 384, .columns = 384, .query_heads = 4, .kv_heads = 1, .head_dim = 64};
  const std::vector<int64_t> lengths{250, 134};
  const auto mask = masks::causal_document({1, 1, 384, 384}, masks::documents_of(lengths));
  for (const DType dtype : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(to_string(dtype));
    Call call(shape, mask, dtype);
    call.run();
    using cpu::reference::Precision;
    const auto problem = cpu::reference::problem_of(call.backward_arguments());
    const auto exact = cpu::reference::backward(problem, Precision::float64, 2);
    const auto naive = cpu::reference::backward(problem, Precision::input, 2);
    const double allowed = tolerance(exact.dk, naive.dk, dtype);
    const std::vector<double> right = call.dk.values();
    EXPECT_LE(deviation(right, exact.dk.values).error, allowed);

    std::vector<double> scaled = right;  // the column with the largest gradient, times 1.05
    const auto worst =
        std::max_element(right.begin(), right.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
    const auto column = (worst - right.begin()) / shape.head_dim * shape.head_dim;
    for (int64_t d = 0; d < shape.head_dim; ++d) scaled[static_cast<std::size_t>(column + d)] *= 1.05;
    EXPECT_GT(deviation(scaled, exact.dk.values).error, allowed);

    // Without the tile of rows [128, 192) and columns [64, 128): dO = 0 takes those rows out of every gradient.
    std::vector<double> lost = right;
    for (int64_t i = 128; i < 192; ++i) {
      for (int64_t h = 0; h < shape.query_heads; ++h) {
        for (int64_t d = 0; d < shape.head_dim; ++d) call.dout.set(0, i, h, d, 0);
      }
    }
    backward(call.backward_arguments());
    const std::vector<double> without = call.dk.values();
    std::copy_n(without.begin() + 64 * shape.head_dim, 64 * shape.head_dim, lost.begin() + 64 * shape.head_dim);
    EXPECT_GT(deviation(lost, exact.dk.values).error, 2 * allowed);
  }
}

TEST(Layouts, strides) {
  EXPECT_EQ(bshd_strides(5, 3, 2), (std::array<int64_t, 4>{30, 6, 2, 1}));
  EXPECT_EQ(bhsd_strides(5, 3, 2), (std::array<int64_t, 4>{30, 2, 10, 1}));
}

}  // namespace
}  // namespace flashmask
