// Random masks, shapes, dtypes, layouts and tile maps: the tiled CPU backend equals the oracle in all five results.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu/tiled.hpp"
#include "flashmask/attention.hpp"
#include "support/attention_call.hpp"

namespace flashmask {
namespace {

using std::int64_t;
using testing::Call;
using testing::describe;
using testing::Layout;
using testing::Random;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kCalls = 60;
#else
constexpr int64_t kCalls = 2000;
#endif

AttentionShape random_attention_shape(Random& random, int64_t limit) {
  const int64_t kv_heads = random.integer(1, 2);
  const int64_t dims[] = {1, 3, 8, 16, 20, 33, 64};
  AttentionShape s{random.integer(1, 2),      random.integer(1, limit), 0, kv_heads * random.integer(1, 2), kv_heads,
                   dims[random.integer(0, 6)]};
  s.columns = random.one_in(2) ? s.rows : random.integer(1, limit);
  if (random.one_in(50)) s.rows = 0;
  if (random.one_in(50)) s.columns = 0;
  return s;
}

/// One to four ranges that partition [0, columns), shuffled.
std::vector<cpu::ColumnRange> random_order(Random& random, int64_t columns) {
  std::vector<int64_t> cuts{0, columns};
  for (int64_t i = random.integer(0, 3); i > 0; --i) cuts.push_back(random.integer(0, columns));
  std::sort(cuts.begin(), cuts.end());
  std::vector<cpu::ColumnRange> ranges;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) ranges.push_back({cuts[i], cuts[i + 1]});
  for (std::size_t i = ranges.size(); i > 1; --i) {
    std::swap(ranges[i - 1], ranges[static_cast<std::size_t>(random.integer(0, static_cast<int64_t>(i) - 1))]);
  }
  return ranges;
}

/// Random visiting orders; and keys and values behind the last column that any row sees are gone (NaN).
cpu::Hooks random_hooks(Random& random, Call& call) {
  cpu::Hooks hooks;
  for (int64_t b = 0; b < call.shape.batch; ++b) {
    hooks.order.push_back(random_order(random, call.shape.columns));
    int64_t count = call.shape.columns;
    const auto seen = [&](int64_t column) {
      for (int64_t h = 0; h < call.mask.shape().heads; ++h) {
        for (int64_t i = 0; i < call.shape.rows; ++i) {
          if (call.mask.visible(b, h, i, column)) return true;
        }
      }
      return false;
    };
    while (count > 0 && !seen(count - 1)) --count;
    hooks.column_counts.push_back(count);
    for (int64_t j = count; j < call.shape.columns; ++j) {
      for (int64_t h = 0; h < call.shape.kv_heads; ++h) {
        for (int64_t d = 0; d < call.shape.head_dim; ++d) {
          call.k.set(b, j, h, d, std::nanf(""));
          call.v.set(b, j, h, d, std::nanf(""));
        }
      }
    }
  }
  return hooks;
}

TEST(Property, tiled_equals_the_oracle_in_all_five_results) {
  for (int64_t step = 0; step < kCalls; ++step) {
    Random random(static_cast<std::uint64_t>(7'000'000 + step));
    const AttentionShape s = random_attention_shape(random, 4 + step * 130 / kCalls);
    const int64_t heads[] = {1, s.kv_heads, s.query_heads};
    const ColumnMask mask = testing::random_mask({s.batch, heads[random.integer(0, 2)], s.rows, s.columns}, random);
    const auto dtype = static_cast<DType>(random.integer(0, 2));
    const auto layout = static_cast<Layout>(random.integer(0, 2));
    Call call(s, mask, dtype, layout, static_cast<std::uint64_t>(step));
    const TileShape tile{static_cast<std::int32_t>(random.integer(1, 140)),
                         static_cast<std::int32_t>(random.integer(1, 140))};
    const TileMap map = TileMap::build(mask, tile, random.one_in(2) ? TileRule::minmax : TileRule::exact);
    if (random.one_in(2)) call.map = &map;
    if (random.one_in(4)) call.scale = 0.25F * random.normal() + 1.0F;
    call.threads = static_cast<int>(random.integer(1, 3));
    SCOPED_TRACE(::testing::Message() << "seed " << step << " dtype " << to_string(dtype) << " layout "
                                      << static_cast<int>(layout) << " heads " << s.query_heads << ':' << s.kv_heads
                                      << " head_dim " << s.head_dim << " map " << (call.map != nullptr) << ' '
                                      << tile.block_m << 'x' << tile.block_n);
    if (random.one_in(3)) {
      const cpu::Hooks hooks = random_hooks(random, call);
      cpu::forward(call.forward_arguments(), hooks);
      cpu::backward(call.backward_arguments(), hooks);
      testing::expect_matches_oracle(call);
    } else {
      call.run();
      testing::expect_matches_oracle(call);
      testing::expect_count_probe(call);
    }
    if (::testing::Test::HasFailure()) FAIL() << describe(mask);
  }
}

}  // namespace
}  // namespace flashmask
