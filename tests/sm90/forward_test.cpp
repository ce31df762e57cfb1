// The forward kernel's decisions that need no GPU: tile shapes, order of tickets, text of a failed wait.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "flashmask/builders.hpp"
#include "flashmask/error.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/forward/packing.hpp"
#include "sm90/forward/section.hpp"
#include "sm90/forward/ticket.hpp"
#include "sm90/sync/wait_site.hpp"

namespace flashmask::sm90 {
namespace {

ColumnMask mask_of(const char* name, std::int64_t rows) {
  masks::BuilderOptions options;
  options.rows = rows;
  return masks::build(name, options);
}

TEST(ForwardTiles, dense_masks_take_wide_blocks_and_sparse_ones_narrow_blocks) {
  const TileShape wide{192, 80}, narrow{192, 64};
  for (const char* name : {"full", "causal", "prefix_lm_causal", "random_eviction"}) {
    EXPECT_EQ(choose_forward_tile(mask_of(name, 8192), 128), wide) << name;
  }
  for (const char* name : {"sliding_window", "share_question"}) {
    EXPECT_EQ(choose_forward_tile(mask_of(name, 8192), 128), narrow) << name;
  }
}

TEST(ForwardTiles, eight_query_heads_of_a_kv_head_and_a_mask_head_pack_where_that_touches_fewer_columns) {
  const TileShape packed{24, 80}, wide{192, 80};
  const auto choice = [](const char* name, std::int64_t query_heads, std::int64_t kv_heads, std::int64_t mask_heads = 1,
                         std::int64_t head_dim = 128) {
    masks::BuilderOptions options;
    options.rows = 8192, options.mask_heads = mask_heads;
    return choose_forward_tile(masks::build(name, options), {2, 8192, 8192, query_heads, kv_heads, head_dim});
  };
  for (const char* name : {"causal", "causal_document", "document", "share_question", "sliding_window"}) {
    EXPECT_EQ(choice(name, 64, 8), packed) << name;
    EXPECT_EQ(choice(name, 64, 1), packed) << name;
    EXPECT_EQ(choice(name, 16, 2, 2), packed) << name;
    EXPECT_NE(choice(name, 32, 8), packed) << name << ", four heads a KV head";
    EXPECT_NE(choice(name, 8, 1, 8), packed) << name << ", a mask a query head";
  }
  EXPECT_EQ(choice("full", 64, 8), wide);
  // All blocks are partial: the bit patterns of a packed map would take 842 MB, those of a plain one fit.
  EXPECT_EQ(choose_forward_tile(mask_of("random_eviction", 32768), {1, 32768, 32768, 64, 8, 128}), wide);
  EXPECT_EQ(choice("causal_document", 64, 8, 1, 64), (TileShape{24, 128}));
  EXPECT_EQ(choice("full", 64, 8, 1, 64), (TileShape{192, 128}));
}

TEST(ForwardTiles, only_calls_whose_heads_eight_divides_have_a_packed_tile) {
  const AttentionShape grouped{1, 100, 100, 16, 2, 128};
  EXPECT_EQ(forward_tiles(grouped, 1).size(), 3U);
  EXPECT_EQ(forward_tiles(grouped, 2).back(), (TileShape{24, 80}));
  EXPECT_EQ(forward_tiles(grouped, 16).size(), 2U);
  EXPECT_EQ(forward_tiles({1, 100, 100, 16, 4, 128}, 1).size(), 2U);
  EXPECT_EQ(forward_tiles({1, 100, 100, 16, 2, 40}, 1).back(), (TileShape{24, 128}));
  EXPECT_EQ(forward_tiles(grouped, 1).front(), forward_tile(128));
}

TEST(ForwardTiles, calls_that_the_mask_does_not_fit_are_refused) {
  EXPECT_THROW(choose_forward_tile(mask_of("causal", 100), AttentionShape{1, 101, 100, 8, 1, 128}), Error);
  EXPECT_THROW(choose_forward_tile(mask_of("causal", 100), AttentionShape{1, 100, 100, 8, 3, 128}), Error);
}

TEST(ForwardTiles, calls_whose_products_leave_int64_are_refused) {
  const std::int64_t huge = std::int64_t{1} << 61;  // times eight it is 0
  EXPECT_THROW(forward_tiles({1, 100, 100, huge, huge, 128}, 1), Error);
  EXPECT_THROW(forward_tiles({1, 100, 100, 16, 2, 128}, huge), Error);
  EXPECT_THROW(choose_forward_tile(mask_of("causal", 100), AttentionShape{1, 100, 100, huge, huge, 128}), Error);
}

TEST(ForwardTiles, masks_of_other_heads_or_batch_rows_are_refused) {
  const auto mask_with = [](std::int64_t batch, std::int64_t heads) { return ColumnMask({batch, heads, 100, 100}); };
  EXPECT_NO_THROW(choose_forward_tile(mask_with(1, 2), AttentionShape{2, 100, 100, 8, 2, 128}));
  EXPECT_THROW(choose_forward_tile(mask_with(1, 3), AttentionShape{1, 100, 100, 8, 1, 128}), Error);
  EXPECT_THROW(choose_forward_tile(mask_with(3, 1), AttentionShape{2, 100, 100, 8, 1, 128}), Error);
}

TEST(ForwardTiles, a_section_stays_below_what_a_map_holds) {
  constexpr std::int64_t heads = 1 << 29;
  EXPECT_EQ(forward_pass::matrices_a_section({1, 0, 0, heads, 1, 128}, {1, heads, 0, 0}), 1 << 30);
}

TEST(ForwardTiles, narrow_heads_have_one_tile) {
  EXPECT_EQ(forward_tiles(64).size(), 1U);
  EXPECT_EQ(forward_tile(40), (TileShape{192, 128}));
  EXPECT_EQ(choose_forward_tile(mask_of("sliding_window", 1000), 64), (TileShape{192, 128}));
  EXPECT_EQ(forward_tile(128), (TileShape{192, 80}));
}

TEST(ForwardTiles, head_dims_out_of_range_are_refused) {
  EXPECT_THROW(forward_tile(0), Error);
  EXPECT_THROW(forward_tile(129), Error);
}

TEST(WaitSite, a_chunk_is_named) {
  EXPECT_EQ(describe_wait(static_cast<std::uint32_t>(WaitSite::chunk) | 5U << 8), "loader waiting for chunk 5");
  EXPECT_EQ(describe_wait(static_cast<std::uint32_t>(WaitSite::full_k)), "consumer waiting for K");
}

TEST(Ticket, every_row_tile_of_every_head_is_drawn_once_and_the_heavy_ones_go_ahead) {
  for (const std::int32_t units : {1, 3, 16, 64})
    for (const std::int32_t tiles : {1, 2, 5, 43, 171})
      for (const std::int32_t section : {1, 4, 16, 64})
        for (const std::int32_t heavy : {0, tiles / 8}) {
          std::set<std::pair<std::int32_t, std::int32_t>> seen;
          forward_pass::TicketPlace before{-1, -1};
          for (std::int32_t ticket = 0; ticket < units * tiles; ++ticket) {
            const forward_pass::TicketPlace place = forward_pass::place_of(ticket, units, tiles, section, heavy);
            ASSERT_TRUE(place.unit >= 0 && place.unit < units && place.rank >= 0 && place.rank < tiles);
            ASSERT_EQ(place.rank < heavy, ticket < units * heavy);
            if (before.unit >= 0 && before.unit / section == place.unit / section) {
              ASSERT_GE(place.rank, before.rank);
            }
            seen.insert({place.unit, place.rank});
            before = place;
          }
          ASSERT_EQ(seen.size(), static_cast<std::size_t>(units) * static_cast<std::size_t>(tiles));
        }
}

TEST(Packing, strips_and_halves_stand_for_the_rows_and_heads_of_their_accumulator_rows) {
  for (const std::int32_t packed : {1, 2, 4, 8, 16}) {
    for (std::int32_t r = 0; r < 192; ++r) {
      const forward_pass::PackedPlace inside = forward_pass::in_strip(r % 16, packed);
      ASSERT_EQ(forward_pass::strip_start(r / 16, packed) + inside.row, r / packed) << packed << ' ' << r;
      ASSERT_EQ(inside.head, r % packed) << packed << ' ' << r;
      const std::int32_t half_row =
          forward_pass::half_start(r / 64, 0, packed) + forward_pass::half_start(0, r % 64 / 32, packed);
      ASSERT_EQ(half_row + r % 32 / packed, r / packed) << packed << ' ' << r;
    }
  }
}

template <std::int32_t PackedHeads>
void expect_spread() {
  for (std::uint32_t rows : {0U, 1U, 2U, 5U, 0xA5A5A5A5U, 0xDEADBEEFU, 0xFFFFFFFFU}) {
    const std::uint32_t spread = forward_pass::spread_rows<PackedHeads>(rows);
    for (std::int32_t r = 0; r < 32; ++r) ASSERT_EQ(spread >> r & 1U, rows >> (r / PackedHeads) & 1U) << PackedHeads;
  }
}

TEST(Packing, the_bits_of_mask_rows_spread_over_their_heads) {
  expect_spread<1>(), expect_spread<2>(), expect_spread<4>(), expect_spread<8>(), expect_spread<16>();
}

TEST(Section, holds_the_heads_whose_keys_and_values_fit_64_mib_for_any_mask) {
  // 32768 columns, head_dim 128: 16 MiB of K and V a head, so 4 KV heads a section.
  const AttentionShape mha{2, 32768, 32768, 16, 16, 128}, gqa{2, 32768, 32768, 64, 8, 128};
  EXPECT_EQ(forward_pass::units_a_section(mha, 1), 4);
  EXPECT_EQ(forward_pass::units_a_section(gqa, 1), 32);
  EXPECT_EQ(forward_pass::units_a_section(gqa, 8), 4);
  EXPECT_EQ(forward_pass::matrices_a_section(mha, {2, 1, 32768, 32768}), 1);  // a batch row has 16 heads
  EXPECT_EQ(forward_pass::matrices_a_section(mha, {2, 16, 32768, 32768}), 4);
  EXPECT_EQ(forward_pass::matrices_a_section(mha, {1, 16, 32768, 32768}), 2);  // each serves two batch rows
  EXPECT_EQ(forward_pass::matrices_a_section(gqa, {2, 8, 32768, 32768}), 4);
  EXPECT_EQ(forward_pass::matrices_a_section(gqa, {2, 64, 32768, 32768}), 32);
  EXPECT_EQ(forward_pass::units_a_section({1, 8, 1 << 24, 4, 4, 128}, 1), 1);
}

TEST(LocalFirst, the_three_windows_visit_every_block_once_and_local_ones_first) {
  for (const std::int32_t first : {0, 3, 10})
    for (const std::int32_t end : {first, first + 4, 40}) {
      std::vector<int> visits(40, 0);
      for (std::int32_t pass = 0; pass < 3; ++pass) {
        const forward_pass::BlockWindow window = forward_pass::local_first_window(pass, first, end);
        for (std::int32_t block = window.first; block < std::min(window.end, 40); ++block) {
          ++visits[static_cast<std::size_t>(block)];
          EXPECT_EQ(pass == 0, block >= first && block < end);
        }
      }
      for (const int count : visits) EXPECT_EQ(count, 1);
    }
}

TEST(LocalFirst, every_block_of_a_run_of_a_packed_map_is_in_the_window_of_its_start) {
  for (const std::int32_t step : {1, 5, 8})
    for (const std::int32_t first : {0, 3, 17})
      for (const std::int32_t count : {1, 2, 9})
        for (std::int32_t place = 0; place < 100; ++place) {
          std::int32_t want = 0;
          for (std::int32_t i = 0; i < count; ++i) want += first + i * step < place ? 1 : 0;
          ASSERT_EQ(forward_pass::blocks_before(first, count, step, place), want)
              << first << ' ' << step << ' ' << place;
        }
  EXPECT_EQ(forward_pass::blocks_before(0, 7, 5, 0x7FFFFFFF), 7);
}

}  // namespace
}  // namespace flashmask::sm90
