// Index arithmetic of the backward kernels, exhaustively.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "flashmask/mask.hpp"
#include "sm90/backward/dq_fragment.hpp"
#include "sm90/backward/visibility.hpp"
#include "sm90/backward/work_list.hpp"
#include "support/random_mask.hpp"

namespace flashmask::sm90::backward_pass {
namespace {

using flashmask::testing::Random;

TEST(BackwardLayout, visible_bits_are_the_visible_rows_of_a_thread) {
  Random random(1);
  for (int n = 0; n < 20000; ++n) {
    const std::int32_t rows = static_cast<std::int32_t>(random.integer(1, 200));
    HiddenRows raw{};
    for (std::int32_t* x : {&raw.lts, &raw.lte, &raw.uts, &raw.ute}) *x = testing::wild_row(random, rows);
    const HiddenRows c = canonical(raw, rows);
    const std::int32_t base = static_cast<std::int32_t>(random.integer(0, 3) * 64 + random.integer(0, 3) * 2);
    const std::uint32_t bits = visible_rows(c.lts, c.lte, c.uts, c.ute, base);
    for (std::int32_t i = 0; i < 16; ++i) {
      const std::int32_t row = base + i / 2 * 8 + i % 2;
      ASSERT_EQ((bits >> i & 1U) != 0, !c.hides(row)) << "rows " << rows << " base " << base << " bit " << i;
    }
  }
}

TEST(BackwardLayout, a_dq_tile_in_fragment_order_is_a_permutation) {
  for (const std::int32_t halves : {1, 2}) {
    std::set<std::int32_t> offsets;
    std::set<std::pair<std::int32_t, std::int32_t>> cells;
    for (std::int32_t half = 0; half < halves; ++half) {
      for (std::int32_t quad = 0; quad < 8; ++quad) {
        for (std::int32_t thread = 0; thread < 128; ++thread) {
          for (std::int32_t e = 0; e < 4; ++e) {
            offsets.insert(dq_fragment_offset(half, quad, thread) + e);
            cells.emplace(dq_fragment_row(quad, thread, e), dq_fragment_dim(half, thread, e));
          }
        }
      }
    }
    EXPECT_EQ(static_cast<std::int32_t>(offsets.size()), halves * 4096);
    EXPECT_EQ(*offsets.rbegin(), halves * 4096 - 1);
    EXPECT_EQ(static_cast<std::int32_t>(cells.size()), halves * 4096);
    EXPECT_EQ(*cells.rbegin(), std::pair(63, halves * 64 - 1));
  }
}

TEST(BackwardLayout, every_work_block_is_dealt_exactly_once_whatever_the_order) {
  Random random(2);
  for (int n = 0; n < 3000; ++n) {
    Extents e{};
    e.batch = static_cast<std::int32_t>(random.integer(1, 3));
    e.kv_heads = static_cast<std::int32_t>(random.integer(1, 4));
    e.query_heads = e.kv_heads * static_cast<std::int32_t>(random.integer(1, 3));
    const std::int32_t choices[] = {1, e.kv_heads, e.query_heads};
    e.mask_heads = choices[random.integer(0, 2)];
    e.mask_batch = random.one_in(2) ? 1 : e.batch;
    e.column_blocks = static_cast<std::int32_t>(random.integer(1, 9));
    std::vector<std::int32_t> order(static_cast<std::size_t>(e.mask_batch * e.mask_heads * e.column_blocks));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(i) - 1))]);
    }
    ColumnLists lists{};
    lists.order = random.one_in(4) ? nullptr : order.data();
    lists.section_heads = static_cast<std::int32_t>(random.integer(1, e.batch * e.kv_heads));
    lists.phases = static_cast<std::int32_t>(random.integer(1, std::min<std::int64_t>(4, order.size())));
    std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t>> seen;
    for (std::int32_t item = 0; item < work_items(e); ++item) {
      const WorkBlock w = work_block(e, lists, item);
      ASSERT_TRUE(w.batch >= 0 && w.batch < e.batch && w.kv_head >= 0 && w.kv_head < e.kv_heads && w.block >= 0 &&
                  w.block < e.column_blocks)
          << "draw " << n << " item " << item << ": " << w.batch << ' ' << w.kv_head << ' ' << w.block;
      ASSERT_TRUE(seen.emplace(w.batch, w.kv_head, w.block).second) << "draw " << n << " item " << item << " again";
    }
    EXPECT_EQ(static_cast<std::int32_t>(seen.size()), work_items(e));
  }
}

TEST(BackwardLayout, a_given_order_is_followed_inside_a_phase_and_section) {
  Extents e{};
  e.batch = 2, e.kv_heads = e.query_heads = 2, e.mask_heads = 1, e.mask_batch = 1, e.column_blocks = 4;
  const std::vector<std::int32_t> order{3, 1, 0, 2};
  ColumnLists lists{};
  lists.order = order.data(), lists.section_heads = 4, lists.phases = 1;
  for (std::int32_t item = 0; item < work_items(e); ++item) {
    EXPECT_EQ(work_block(e, lists, item).block, order[static_cast<std::size_t>(item / 4)]) << "item " << item;
  }
  lists.phases = 2, lists.section_heads = 2;  // first two blocks of heads 0, 1, then of heads 2, 3, then the rest
  const std::vector<std::int32_t> blocks{3, 3, 1, 1, 3, 3, 1, 1, 0, 0, 2, 2, 0, 0, 2, 2};
  for (std::int32_t item = 0; item < work_items(e); ++item) {
    EXPECT_EQ(work_block(e, lists, item).block, blocks[static_cast<std::size_t>(item)]) << "item " << item;
  }
}

}  // namespace
}  // namespace flashmask::sm90::backward_pass
