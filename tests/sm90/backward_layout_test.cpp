// Index arithmetic of the backward kernels, exhaustively.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "flashmask/mask.hpp"
#include "sm90/backward/dealing.hpp"
#include "sm90/backward/dq_fragment.hpp"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/split.hpp"
#include "sm90/backward/sweep.hpp"
#include "sm90/backward/visibility.hpp"
#include "sm90/backward/work_list.hpp"
#include "sm90/layout/fragment.hpp"
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

/// Of a pair at head_dim 64: each CTA loads one of two halves of the rows, into both.
TEST(BackwardLayout, half_of_the_rows_of_a_tile_is_a_tile) {
  constexpr BackwardConfig pair{.head_dim = 64, .bf16 = true, .accumulate_dq = true, .paired = true};
  constexpr std::uint32_t rows = pair.share_rows();
  ASSERT_EQ(rows, 32U);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    for (std::uint32_t row = 0; row < rows; ++row) {
      for (std::uint32_t column = 0; column < 64; ++column) {
        ASSERT_EQ(layout::tile_offset(rank * rows + row, column, block_rows),
                  rank * rows * layout::row_bytes + layout::tile_offset(row, column, rows));
      }
    }
  }
  EXPECT_LE(sizeof(SharedMemory<pair>), shared_memory_limit);
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
    const auto waiting = static_cast<std::int32_t>(random.integer(0, static_cast<std::int64_t>(order.size())));
    std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t>> seen;
    for (std::int32_t item = 0; item < work_items(e); ++item) {
      const WorkBlock w = work_block(e, lists, waiting, item);
      ASSERT_TRUE(w.batch >= 0 && w.batch < e.batch && w.kv_head >= 0 && w.kv_head < e.kv_heads && w.block >= 0 &&
                  w.block < e.column_blocks)
          << "draw " << n << " item " << item << ": " << w.batch << ' ' << w.kv_head << ' ' << w.block;
      ASSERT_TRUE(seen.emplace(w.batch, w.kv_head, w.block).second) << "draw " << n << " item " << item << " again";
    }
    EXPECT_EQ(static_cast<std::int32_t>(seen.size()), work_items(e));
  }
}

Extents random_extents(Random& random) {
  Extents e{};
  e.batch = static_cast<std::int32_t>(random.integer(1, 2));
  e.kv_heads = static_cast<std::int32_t>(random.integer(1, 3));
  const std::int32_t groups[] = {1, 2, 4, 6};
  e.query_heads = e.kv_heads * groups[random.integer(0, 3)];
  const std::int32_t mask_heads[] = {1, e.kv_heads, e.query_heads};
  e.mask_heads = mask_heads[random.integer(0, 2)];
  e.mask_batch = random.one_in(2) ? 1 : e.batch;
  e.row_tiles = static_cast<std::int32_t>(random.integer(1, 12));
  e.column_blocks = static_cast<std::int32_t>(random.integer(1, 4));
  return e;
}

/// The item number of a place: what work_block() undoes. The `position`th block of the order, `head` among those that
/// share a list, in 64 bits.
std::int64_t item_of(std::int64_t blocks, std::int64_t waiting, std::int64_t sharing, std::int64_t section,
                     std::int64_t position, std::int64_t head) {
  const bool light = position >= blocks - waiting;
  const std::int64_t first_block = light ? blocks - waiting : 0;
  const std::int64_t in_phase = light ? waiting : blocks - waiting;
  const std::int64_t first_head = head / section * section;
  const std::int64_t heads = std::min(section, sharing - first_head);
  return first_block * sharing + in_phase * first_head + (position - first_block) * heads + head - first_head;
}

TEST(BackwardLayout, calls_of_nearly_2_to_the_31_blocks_are_dealt_in_int32) {
  Random random(5);
  std::vector<std::int32_t> order(std::size_t{1} << 20);
  std::iota(order.rbegin(), order.rend(), 0);
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 65536;  // what validate() lets pass
  std::int64_t largest = 0;
  for (int n = 0; n < 400; ++n) {
    Extents e{};
    e.kv_heads = e.query_heads = static_cast<std::int32_t>(random.integer(1, 64));
    e.mask_heads = random.one_in(2) ? 1 : e.kv_heads;
    e.mask_batch = 1;
    e.column_blocks = static_cast<std::int32_t>(random.integer(1, (std::int64_t{1} << 20) / e.mask_heads));
    e.batch = static_cast<std::int32_t>((most - 1) / (std::int64_t{e.kv_heads} * e.column_blocks));
    const std::int64_t blocks = std::int64_t{e.mask_heads} * e.column_blocks;
    const std::int64_t kv_sharing = e.kv_heads / e.mask_heads;
    const std::int64_t sharing = kv_sharing * e.batch;
    largest = std::max(largest, blocks * sharing);
    ASSERT_EQ(work_items(e), blocks * sharing) << "draw " << n;
    ColumnLists lists{};
    lists.order = order.data() + (order.size() - static_cast<std::size_t>(blocks));  // blocks - 1 to 0
    lists.section_heads = static_cast<std::int32_t>(std::min(sharing, random.integer(1, 8)));
    const std::int64_t waiting = blocks * random.integer(0, 50) / 100;
    for (int place = 0; place < 200; ++place) {
      const std::int64_t position = place < 2 ? blocks - 1 : random.integer(0, blocks - 1);
      const std::int64_t head = place < 4 ? sharing - 1 : random.integer(0, sharing - 1);
      const std::int64_t item = item_of(blocks, waiting, sharing, lists.section_heads, position, head);
      const WorkBlock w = work_block(e, lists, static_cast<std::int32_t>(waiting), static_cast<std::int32_t>(item));
      const std::int64_t list = blocks - 1 - position;
      ASSERT_EQ(std::tuple(w.block, w.batch, w.kv_head),
                std::tuple(list % e.column_blocks, head / kv_sharing,
                           list / e.column_blocks * kv_sharing + head % kv_sharing))
          << "draw " << n << " item " << item << " of " << blocks * sharing;
    }
  }
  EXPECT_GT(largest, most - (std::int64_t{1} << 22));
}

TEST(BackwardLayout, no_section_has_more_heads_than_share_a_list_and_calls_without_rows_are_dealt_too) {
  const Extents many{.batch = 64,
                     .rows = 32768,
                     .columns = 32768,
                     .query_heads = 64,
                     .kv_heads = 64,
                     .head_dim = 8,
                     .mask_batch = 64,
                     .mask_heads = 64,
                     .row_tiles = 512,
                     .column_blocks = 256};
  EXPECT_EQ(given_dealing(many).section_heads, 1);  // 4,096 sections of a list: 2^20 blocks times 4,096 heads is 2^32
  EXPECT_EQ(default_dealing(many, 132).section_heads, 1);
  Random random(6);
  for (int n = 0; n < 2000; ++n) {
    Extents e = random_extents(random);
    e.rows = static_cast<std::int32_t>(random.one_in(3) ? 0 : random.integer(1, 200000)), e.head_dim = 128;
    e.column_blocks = static_cast<std::int32_t>(random.integer(0, 4000));
    const Dealing dealing = default_dealing(e, 132);
    ASSERT_TRUE(dealing.section_heads >= 1 && dealing.section_heads <= std::max(1, sharing_heads(e)))
        << "draw " << n << ": " << dealing.section_heads;
  }
}

TEST(BackwardLayout, a_given_order_is_followed_inside_a_section_and_the_light_blocks_come_last) {
  Extents e{};
  e.batch = 2, e.kv_heads = e.query_heads = 2, e.mask_heads = 1, e.mask_batch = 1, e.column_blocks = 4;
  const std::vector<std::int32_t> order{3, 1, 0, 2};
  ColumnLists lists{};
  lists.order = order.data(), lists.section_heads = 4;
  for (std::int32_t item = 0; item < work_items(e); ++item) {
    EXPECT_EQ(work_block(e, lists, 0, item).block, order[static_cast<std::size_t>(item / 4)]) << "item " << item;
  }
  lists.section_heads = 2;  // first two blocks of heads 0, 1, then of heads 2, 3, then the rest
  const std::vector<std::int32_t> blocks{3, 3, 1, 1, 3, 3, 1, 1, 0, 0, 2, 2, 0, 0, 2, 2};
  for (std::int32_t item = 0; item < work_items(e); ++item) {
    EXPECT_EQ(work_block(e, lists, 2, item).block, blocks[static_cast<std::size_t>(item)]) << "item " << item;
  }
}

TEST(BackwardLayout, light_blocks_wait_only_where_they_are_lighter_than_the_heaviest) {
  Extents e{};
  e.batch = 1, e.kv_heads = e.query_heads = 2, e.mask_heads = 1, e.mask_batch = 1, e.column_blocks = 4;
  std::vector<sm90::Run> runs(5);  // two of the heaviest block
  runs[0].count = runs[1].count = 6;
  for (std::size_t n = 2; n < runs.size(); ++n) runs[n].count = 12;
  const std::vector<std::int32_t> begin{0, 2, 3, 4}, count{2, 1, 1, 1}, order{0, 1, 2, 3};
  ColumnLists lists{};
  lists.runs = runs.data(), lists.begin = begin.data(), lists.count = count.data(), lists.order = order.data();
  EXPECT_EQ(waiting_blocks(e, lists), 0);
  lists.light_blocks = 2;
  EXPECT_EQ(waiting_blocks(e, lists), 0) << "all alike";
  runs[4].count = 1;
  EXPECT_EQ(waiting_blocks(e, lists), 0) << "the heavier one of two light blocks decides";
  runs[3].count = 9;
  EXPECT_EQ(waiting_blocks(e, lists), 0) << "three quarters";
  runs[3].count = 8;
  EXPECT_EQ(waiting_blocks(e, lists), 2);
  lists.light_blocks = 4;
  EXPECT_EQ(waiting_blocks(e, lists), 0) << "all of them: the heaviest is not lighter than itself";
  lists.light_blocks = 2;
  e.mask_heads = e.query_heads = 4;
  EXPECT_EQ(waiting_blocks(e, lists), 0) << "a block has a list a query head: no order";
  e.mask_heads = 1;
  lists.order = nullptr;
  EXPECT_EQ(waiting_blocks(e, lists), 0);
}

TEST(BackwardLayout, tile_flags_name_the_buffers_of_successive_blocks_and_their_phases) {
  for (std::uint32_t block = 0; block < 16; ++block) {
    const std::uint32_t flags = block_flags(block) | tile_flag::partial | tile_flag::last;
    EXPECT_EQ(buffer_of(flags), block % 2);
    EXPECT_EQ(parity_of(flags), block / 2 % 2);
    for (const std::uint32_t stages : {1U, 2U}) {
      EXPECT_EQ(buffer_of(flags, stages), block % stages);
      EXPECT_EQ(parity_of(flags, stages), block / stages % 2);
    }
  }
}

/// Lists of random runs for every (matrix, column block), one matrix a mask head.
struct RandomLists {
  std::vector<Run> runs;
  std::vector<std::int32_t> begin, count;

  RandomLists(Random& random, const Extents& e) {
    for (std::int32_t list = 0; list < e.mask_batch * e.mask_heads * e.column_blocks; ++list) {
      begin.push_back(static_cast<std::int32_t>(runs.size()));
      std::int32_t at = static_cast<std::int32_t>(random.integer(0, 3));
      while (at < e.row_tiles && !random.one_in(4)) {
        const auto length = static_cast<std::int32_t>(random.integer(1, e.row_tiles - at));
        runs.push_back({at, length, random.one_in(2) ? 1U : 2U, -1});
        at += length + static_cast<std::int32_t>(random.integer(0, 3));
      }
      count.push_back(static_cast<std::int32_t>(runs.size()) - begin.back());
    }
  }
  [[nodiscard]] ColumnLists view() const { return {runs.data(), begin.data(), count.data(), nullptr, 1, 1}; }
};

TEST(BackwardLayout, blocks_that_sweep_over_a_quarter_of_their_group_move_the_front) {
  Extents e{};
  e.query_heads = 8, e.kv_heads = 2, e.row_tiles = 100;  // groups of 400 tiles
  EXPECT_FALSE(moves_front(e, 99));
  EXPECT_TRUE(moves_front(e, 100));
  e.kv_heads = 8;
  EXPECT_FALSE(moves_front(e, 24));
  EXPECT_TRUE(moves_front(e, 25));
}

TEST(BackwardLayout, a_sweep_visits_every_tile_once_from_any_front_on) {
  Random random(3);
  for (int n = 0; n < 4000; ++n) {
    const Extents e = random_extents(random);
    const RandomLists lists(random, e);
    const WorkBlock w{static_cast<std::int32_t>(random.integer(0, e.batch - 1)),
                      static_cast<std::int32_t>(random.integer(0, e.kv_heads - 1)),
                      static_cast<std::int32_t>(random.integer(0, e.column_blocks - 1)), 0};
    std::vector<std::tuple<std::int32_t, std::int32_t, bool>> want;  // in the order of a front of 0
    for (std::int32_t g = 0; g < e.group(); ++g) {
      const std::int32_t list = e.list(w.batch, w.kv_head * e.group() + g, w.block);
      for (std::int32_t i = 0; i < lists.count[list]; ++i) {
        const auto& r = lists.runs[lists.begin[list] + i];
        for (std::int32_t tile = r.first; tile < r.first + r.count; ++tile) want.emplace_back(g, tile, r.classes == 1);
      }
    }
    ASSERT_EQ(block_tiles(e, lists.view(), w), static_cast<std::int32_t>(want.size())) << "draw " << n;
    const bool wild = random.one_in(5);  // what the word may hold before anyone wrote it
    const auto front = static_cast<std::uint32_t>(wild ? random.integer(e.group() * e.row_tiles, 0xFFFFFFFFLL)
                                                       : random.integer(0, e.group() * e.row_tiles - 1));
    if (!wild) {
      std::rotate(want.begin(),
                  std::find_if(want.begin(), want.end(),
                               [&](const auto& x) {
                                 return static_cast<std::uint32_t>(std::get<0>(x) * e.row_tiles + std::get<1>(x)) >=
                                        front;
                               }),
                  want.end());
    }
    std::vector<std::tuple<std::int32_t, std::int32_t, bool>> got;
    sweep(e, lists.view(), w, static_cast<std::int32_t>(want.size()), front,
          [&](std::int32_t head, std::int32_t tile, bool partial, std::int32_t left) {
            got.emplace_back(head, tile, partial);
            ASSERT_EQ(static_cast<std::size_t>(left), want.size() - got.size()) << "draw " << n;
          });
    ASSERT_EQ(got, want) << "draw " << n << " front " << front;
  }
}

TEST(BackwardLayout, parts_divide_the_group_and_fill_the_processors_where_they_can) {
  for (std::int32_t group = 1; group <= 64; ++group) {
    for (const std::int64_t blocks : {1, 64, 128, 1024, 1055, 1056, 4096}) {
      const std::int32_t parts = parts_of(blocks, group);
      ASSERT_EQ(group % parts, 0) << group << " query heads, " << blocks << " blocks";
      ASSERT_TRUE(blocks * parts >= 1056 || parts == group) << group << " query heads, " << blocks << " blocks";
      for (std::int32_t fewer = 1; fewer < parts; ++fewer) {
        ASSERT_TRUE(group % fewer != 0 || blocks * fewer < 1056)
            << fewer << " would do for " << group << ", " << blocks;
      }
    }
  }
  EXPECT_EQ(parts_of(128, 64), 16);  // 64:1 at 8192, batch 2
  EXPECT_EQ(parts_of(1024, 8), 2);   // 64:8 at 8192, batch 2
  EXPECT_EQ(parts_of(4096, 1), 1);
  for (const std::int64_t blocks : {0, 1}) {  // at once, though no divisor is small
    EXPECT_EQ(parts_of(blocks, std::numeric_limits<std::int32_t>::max()), std::numeric_limits<std::int32_t>::max());
  }
}

TEST(BackwardLayout, parts_of_groups_are_dealt_once_with_every_query_head_in_one_part) {
  Random random(4);
  for (int n = 0; n < 1000; ++n) {
    const Extents e = random_extents(random);
    std::int32_t parts = static_cast<std::int32_t>(random.integer(1, e.group()));
    while (e.group() % parts != 0) --parts;
    const Extents split = split_extents(e, parts);
    std::vector<std::int32_t> order(static_cast<std::size_t>(e.mask_batch * e.mask_heads * e.column_blocks));
    std::iota(order.begin(), order.end(), 0);
    const ColumnLists lists{nullptr, nullptr, nullptr, order.data(), split.batch * split.kv_heads, 0};
    std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t>> seen;  // (batch, query head, block)
    for (std::int32_t item = 0; item < work_items(split); ++item) {
      const WorkBlock w = work_block(split, lists, 0, item);
      for (std::int32_t g = 0; g < split.group(); ++g) {
        const std::int32_t query_head = w.kv_head * split.group() + g;
        ASSERT_EQ(query_head / e.group(), w.kv_head / parts) << "draw " << n << ": another KV head's query head";
        ASSERT_TRUE(seen.emplace(w.batch, query_head, w.block).second) << "draw " << n << " item " << item;
      }
    }
    EXPECT_EQ(static_cast<std::int32_t>(seen.size()), e.batch * e.query_heads * e.column_blocks);
  }
}

TEST(BackwardLayout, sums_of_parts_fill_their_workspace_without_overlap) {
  constexpr std::int32_t head_dim = 128;
  for (const std::int32_t work_columns : {128, 256}) {
    Extents e{};
    e.batch = 2, e.kv_heads = 3, e.column_blocks = 2, e.work_columns = work_columns;
    std::set<std::int64_t> offsets;
    for (std::int32_t b = 0; b < e.batch; ++b) {
      for (std::int32_t head = 0; head < e.kv_heads; ++head) {
        for (std::int32_t column = 0; column < e.column_blocks * work_columns; column += piece_columns) {
          const std::int64_t from = part_offset(e, head_dim, b, head, column);
          for (std::int32_t quad = 0; quad < head_dim / 8; ++quad) {
            for (std::int32_t thread = 0; thread < 128; ++thread)
              offsets.insert(from + part_fragment_offset(quad, thread));
          }
        }
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(offsets.size()) * 4, part_floats(e, head_dim)) << work_columns;
    EXPECT_EQ(*offsets.rbegin() + 4, part_floats(e, head_dim)) << work_columns;
  }
}

}  // namespace
}  // namespace flashmask::sm90::backward_pass
