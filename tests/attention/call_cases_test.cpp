// CASES.md part A at attention level, how a call is made: A21 to A32. Heads, layouts, sizes, threads, repeated and
// interleaved calls.
#include <thread>

#include "cases_support.hpp"

namespace flashmask {
namespace {

using std::int32_t;
using std::int64_t;
using testing::Call;
using testing::causal;
using testing::Counts;
using testing::cross;
using testing::expect_dead_columns;
using testing::expect_dead_rows;
using testing::expect_right;
using testing::expect_samples_match;
using testing::kSanitized;
using testing::Layout;
using testing::self;
using testing::startend;

TEST(Cases, A21_grouped_heads_ragged_causal) {
  const AttentionShape shape{.rows = 239, .columns = 203, .query_heads = 6, .kv_heads = 2, .head_dim = 80};
  Call call(shape, masks::causal({1, 1, 239, 203}), DType::bf16);
  call.run();
  testing::expect_matches_oracle(call);
  expect_dead_rows(call, 0, 36);
  testing::expect_count_probe(call);
}

TEST(Cases, A22_dead_columns_over_poisoned_outputs) {
  std::vector<int32_t> values;
  std::vector<int64_t> dead;
  for (int32_t j = 0; j < 256; ++j) {
    values.insert(values.end(), {j < 128 ? 256 : 0, 0});
    if (j >= 128) dead.push_back(j);
  }
  expect_right(self(256), startend({1, 1, 256, 256}, false, 2, values),
               [&](const Call& call) { expect_dead_columns(call, dead); });
}

TEST(Cases, A23_documents_64_and_36) {
  const ColumnMask mask =
      masks::document({1, 1, 100, 100}, masks::Packing({masks::Document{.length = 64}, masks::Document{.length = 36}}));
  const TileMap map = TileMap::build(mask, {64, 64});
  EXPECT_EQ(map.counts(), (TileCounts{2, 0, 2}));
  Call call(self(100), mask, DType::bf16);
  call.map = &map;
  call.run();
  testing::expect_matches_oracle(call);
}

TEST(Cases, A24_sixty_four_rows_around_16384_columns) {
  for (const int64_t columns : kSanitized ? Counts{16385} : Counts{16383, 16384, 16385, 16512, 16513, 32769}) {
    for (const int64_t head_dim : {64, 128}) {
      if (head_dim == 128 && (kSanitized || columns != 16385)) continue;
      SCOPED_TRACE(::testing::Message() << columns << " columns, head_dim " << head_dim);
      Call call(cross(64, columns, head_dim), causal(64, columns), DType::bf16);
      call.run();
      const Counts sample =
          kSanitized ? Counts{columns - 1} : Counts{0, columns - 65, columns - 64, columns - 63, columns - 1};
      expect_samples_match(call, {0, 31, 63}, sample);
    }
  }
}

TEST(Cases, A26_every_layout_equals_its_own_reference) {
  const AttentionShape shape{
      .batch = 2, .rows = 64, .columns = 64, .query_heads = kSanitized ? 8 : 64, .kv_heads = 8, .head_dim = 8};
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::transposed}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (kSanitized && dtype == DType::f32) continue;
      Call call(shape, masks::causal({2, 1, 64, 64}), dtype, layout);
      call.run();
      testing::expect_matches_oracle(call);
    }
  }
}

/// Query-head masks where some heads see nothing of whole tiles, or nothing at all.
ColumnMask mask_with_empty_tiles(int64_t n, int64_t heads) {
  ColumnMask mask({1, heads, n, n});
  for (int64_t h = 0; h < heads; ++h) {
    for (int32_t j = 0; j < n; ++j) {
      const int32_t end = h % 4 == 3 ? 0 : static_cast<int32_t>(std::min<int64_t>(n, j + 1 + h * 70));
      mask.set(0, h, j, {end, static_cast<int32_t>(n), 0, j});
    }
  }
  return mask;
}

TEST(Cases, A30_twenty_runs_and_any_thread_count_give_the_same_bits) {
  const int64_t n = 200;
  for (const int64_t kv_heads : {8, 2, 1}) {
    for (const int64_t mask_heads : {int64_t{1}, kv_heads, int64_t{8}}) {
      const AttentionShape shape{.rows = n, .columns = n, .query_heads = 8, .kv_heads = kv_heads, .head_dim = 32};
      Call call(shape, mask_with_empty_tiles(n, mask_heads), DType::bf16);
      call.threads = 1;
      call.run();
      const auto first = call.result_bytes();
      for (int run = 0; run < (kSanitized ? 4 : 20); ++run) {
        call.threads = 1 + run % 5;
        call.run();
        ASSERT_EQ(call.result_bytes(), first) << "run " << run << " kv heads " << kv_heads;
      }
    }
  }
}

TEST(Cases, A31_interleaved_calls_and_a_reused_argument_struct) {
  std::vector<Call> calls;
  std::vector<std::vector<std::uint8_t>> serial;
  for (const int64_t n : {130, 64, 1, 200}) {
    calls.emplace_back(self(n), causal(n, n), DType::bf16, Layout::bshd, static_cast<std::uint64_t>(n));
    calls.back().threads = 1;
    calls.back().run();
    serial.push_back(calls.back().result_bytes());
  }
  const auto worker = [&](std::size_t first) {
    ForwardArguments arguments;  // one struct for calls of different shapes
    for (int round = 0; round < (kSanitized ? 5 : 25); ++round) {
      for (std::size_t i = first; i < calls.size(); i += 2) {
        arguments = calls[i].forward_arguments();
        forward(arguments);
        backward(calls[i].backward_arguments());
      }
    }
  };
  std::thread other(worker, 1);
  worker(0);
  other.join();
  for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i].result_bytes(), serial[i]) << "call " << i;
}

TEST(Cases, A32_vectors_refilled_in_place) {
  const auto packed = [](const std::vector<int64_t>& lengths) {
    return masks::causal_document({1, 1, 16, 16}, masks::documents_of(lengths));
  };
  Call call(self(16), packed({16}), DType::bf16);
  call.run();
  Call eager_one(self(16), packed({16}), DType::bf16);
  eager_one.run();
  EXPECT_EQ(call.result_bytes(), eager_one.result_bytes());
  const ColumnMask three = packed({5, 5, 6});
  for (int64_t j = 0; j < 16; ++j) call.mask.set(0, 0, j, three.at(0, 0, j));
  call.run();
  Call eager_three(self(16), three, DType::bf16);
  eager_three.run();
  EXPECT_EQ(call.result_bytes(), eager_three.result_bytes());
  EXPECT_NE(call.result_bytes(), eager_one.result_bytes());
}

}  // namespace
}  // namespace flashmask
