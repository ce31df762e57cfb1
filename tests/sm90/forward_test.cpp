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
  for (const std::int32_t packed : {1, 2, 4, 8, 16, 32, 64}) {
    for (std::int32_t r = 0; r < 192; ++r) {
      const forward_pass::PackedPlace start = forward_pass::strip_start(r / 16, packed);
      const forward_pass::PackedPlace inside = forward_pass::in_strip(r % 16, packed);
      ASSERT_EQ(start.row + inside.row, r / packed) << packed << ' ' << r;
      ASSERT_EQ(start.head + inside.head, r % packed) << packed << ' ' << r;
      const std::int32_t half_row =
          forward_pass::half_start(r / 64, 0, packed) + forward_pass::half_start(0, r % 64 / 32, packed);
      ASSERT_EQ(half_row + r % 32 / packed, r / packed) << packed << ' ' << r;
      // A warp's rows are whole mask rows, or part of one: its copy out is one box of heads x rows.
      ASSERT_TRUE(start.head == 0 || packed > 16);
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
  expect_spread<1>(), expect_spread<2>(), expect_spread<4>(), expect_spread<8>();
  expect_spread<16>(), expect_spread<32>(), expect_spread<64>();
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

}  // namespace
}  // namespace flashmask::sm90
