// What context parallelism relies on: keys are waited for before they are read, a given order is followed and decides
// the bits alone, and gradients are final when they are reported.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "cpu/tiled.hpp"
#include "flashmask/builders.hpp"
#include "flashmask/error.hpp"
#include "support/attention_call.hpp"

namespace flashmask::cpu {
namespace {

using std::int64_t;
using testing::Call;

ColumnMask documents(int64_t batch, int64_t n, const std::vector<int64_t>& lengths) {
  return masks::causal_document({batch, 1, n, n}, masks::documents_of(lengths));
}

Call grouped_call(int64_t n = 300) {
  const AttentionShape shape{.batch = 2, .rows = n, .columns = n, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
  return {shape, documents(2, n, {90, 100, 20}), DType::bf16};  // 90 columns of padding nobody sees
}

void run(Call& call, const Hooks& hooks) {
  cpu::forward(call.forward_arguments(), hooks);
  cpu::backward(call.backward_arguments(), hooks);
}

TEST(Hooks, keys_and_values_are_waited_for_before_they_are_read) {
  Call whole = grouped_call();
  whole.run();
  Call call = grouped_call();
  const testing::Tensor keys = call.k;
  const testing::Tensor values = call.v;
  call.k.fill(std::nanf(""));  // nothing has arrived
  call.v.fill(std::nanf(""));
  std::mutex mutex;
  std::set<std::pair<int64_t, int64_t>> arrived;
  Hooks hooks;
  hooks.wait = [&](int64_t batch, int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    ASSERT_LT(begin, end);
    ASSERT_LE(end - begin, 64);
    ASSERT_LE(end, 256) << "a block that nobody sees";
    for (int64_t j = begin; j < end; ++j) {
      if (!arrived.insert({batch, j}).second) continue;
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t d = 0; d < 16; ++d) {
          call.k.set(batch, j, h, d, keys.get(batch, j, h, d));
          call.v.set(batch, j, h, d, values.get(batch, j, h, d));
        }
      }
    }
  };
  run(call, hooks);
  EXPECT_EQ(call.result_bytes(), whole.result_bytes());
  EXPECT_EQ(arrived.size(), 2U * 256U);
}

TEST(Hooks, a_coarse_tile_does_not_wait_for_a_piece_that_nobody_sees) {
  const AttentionShape shape{.rows = 64, .columns = 128, .query_heads = 1, .kv_heads = 1, .head_dim = 8};
  ColumnMask mask({1, 1, 64, 128});
  for (int64_t j = 64; j < 128; ++j) mask.set(0, 0, j, {0, 64, 0, 0});
  Call call(shape, mask, DType::f32);
  const TileMap map = TileMap::build(mask, {128, 128});
  ASSERT_EQ(map.at(0, 0, 0, 0), TileClass::partial);
  call.map = &map;
  Hooks hooks;
  hooks.wait = [](int64_t, int64_t, int64_t end) { EXPECT_LE(end, 64); };
  run(call, hooks);
  testing::expect_matches_oracle(call);
}

TEST(Hooks, what_a_wait_throws_ends_the_call) {
  Call call = grouped_call();
  Hooks hooks;
  hooks.wait = [](int64_t, int64_t begin, int64_t) {
    if (begin >= 128) throw Error(ErrorCode::timeout, "rank 3 never sent chunk 2");
  };
  EXPECT_THROW(cpu::forward(call.forward_arguments(), hooks), Error);
  EXPECT_THROW(cpu::backward(call.backward_arguments(), hooks), Error);
}

TEST(Hooks, an_order_decides_the_bits_and_threads_do_not) {
  Call call = grouped_call();
  Hooks hooks;
  hooks.order = {{{200, 300}, {0, 70}, {70, 200}}, {}};
  call.threads = 1;
  run(call, hooks);
  const auto first = call.result_bytes();
  testing::expect_matches_oracle(call);
  for (int threads = 1; threads <= 5; ++threads) {
    call.threads = threads;
    run(call, hooks);
    ASSERT_EQ(call.result_bytes(), first) << threads << " threads";
  }
}

TEST(Hooks, keys_are_visited_in_the_given_order) {
  const AttentionShape shape{.rows = 64, .columns = 300, .query_heads = 1, .kv_heads = 1, .head_dim = 8};
  Call call(shape, ColumnMask({1, 1, 64, 300}), DType::f32);
  call.threads = 1;
  std::vector<std::pair<int64_t, int64_t>> visited;
  Hooks hooks;
  hooks.order = {{{200, 300}, {0, 70}, {70, 200}}};
  hooks.wait = [&](int64_t, int64_t begin, int64_t end) { visited.push_back({begin, end}); };
  const std::vector<std::pair<int64_t, int64_t>> expected{{200, 256}, {256, 300}, {0, 64},   {64, 70},
                                                          {70, 128},  {128, 192}, {192, 200}};
  cpu::forward(call.forward_arguments(), hooks);
  EXPECT_EQ(visited, expected);
}

TEST(Hooks, columns_beyond_a_batch_rows_count_are_never_read) {
  Call call = grouped_call();
  Call whole = grouped_call();
  whole.run();
  for (int64_t j = 210; j < 300; ++j) {  // visible to no row, and now not even there
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t d = 0; d < 16; ++d) {
        for (testing::Tensor* t : {&call.k, &call.v}) t->set(1, j, h, d, std::nanf(""));
      }
    }
  }
  Hooks hooks;
  hooks.column_counts = {300, 210};
  run(call, hooks);
  EXPECT_EQ(call.result_bytes(), whole.result_bytes());
}

TEST(Hooks, gradients_are_final_when_reported_and_every_column_is_reported_once) {
  Call whole = grouped_call();
  whole.run();
  Call call = grouped_call();
  cpu::forward(call.forward_arguments());
  std::mutex mutex;
  std::vector<int> reported(2 * 300, 0);
  std::vector<int64_t> begins;
  Hooks hooks;
  hooks.order = {{{128, 300}, {0, 128}}, {{128, 300}, {0, 128}}};
  hooks.gradients_complete = [&](int64_t batch, int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    if (batch == 0) begins.push_back(begin);
    for (int64_t j = begin; j < end; ++j) {
      ++reported[static_cast<std::size_t>(batch * 300 + j)];
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t d = 0; d < 16; ++d) {
          EXPECT_EQ(call.dk.get(batch, j, h, d), whole.dk.get(batch, j, h, d)) << "column " << j;
          EXPECT_EQ(call.dv.get(batch, j, h, d), whole.dv.get(batch, j, h, d)) << "column " << j;
        }
      }
    }
  };
  call.threads = 1;
  cpu::backward(call.backward_arguments(), hooks);
  for (const int times : reported) EXPECT_EQ(times, 1);
  EXPECT_EQ(begins, (std::vector<int64_t>{128, 192, 256, 0, 64}));
  call.threads = 3;
  cpu::backward(call.backward_arguments(), hooks);
  for (const int times : reported) EXPECT_EQ(times, 2);
}

TEST(Hooks, gradients_of_16_bit_inputs_may_be_float32) {
  Call call = grouped_call();
  call.run();
  const testing::Tensor dk16 = call.dk;
  call.dk = testing::Tensor(2, 300, 2, 16, DType::f32);
  call.dv = testing::Tensor(2, 300, 2, 16, DType::f32);
  cpu::backward(call.backward_arguments());
  call.dk.for_each([&](auto b, auto j, auto h, auto d) {
    ASSERT_EQ(core::bf16_to_float(core::float_to_bf16(call.dk.get(b, j, h, d))), dk16.get(b, j, h, d));
  });
}

TEST(Hooks, orders_and_counts_that_do_not_fit_are_refused) {
  Call call = grouped_call();
  const auto refused = [&](const Hooks& hooks) {
    EXPECT_THROW(cpu::forward(call.forward_arguments(), hooks), Error);
    EXPECT_THROW(cpu::backward(call.backward_arguments(), hooks), Error);
  };
  Hooks hooks;
  hooks.order = {{{0, 300}}};
  refused(hooks);  // one batch row missing
  hooks.order = {{{0, 100}, {120, 300}}, {}};
  refused(hooks);  // a gap
  hooks.order = {{{0, 100}, {90, 300}}, {}};
  refused(hooks);  // an overlap
  hooks.order = {{{0, 299}}, {}};
  refused(hooks);  // too short
  hooks.order.clear();
  hooks.column_counts = {300, 301};
  refused(hooks);
  hooks.column_counts = {300};
  refused(hooks);
}

}  // namespace
}  // namespace flashmask::cpu
