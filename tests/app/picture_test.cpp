#include "picture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "flashmask/builders.hpp"
#include "report.hpp"

namespace flashmask::app {
namespace {

TEST(Picture, the_shades_of_none_some_and_all_differ) {
  ASSERT_EQ(setenv("LC_ALL", "C", 1), 0);
  const ColumnMask mask = masks::causal({1, 1, 4, 4});
  EXPECT_EQ(terminal_picture(mask, {}, 64, 32), "  |#   |\n  |##  |\n  |### |\n  |####|\n");
  EXPECT_EQ(terminal_picture(mask, {}, 2, 2), "  |* |\n  |#*|\n");
}

TEST(Picture, one_hidden_cell_among_many_shows) {
  ASSERT_EQ(setenv("LC_ALL", "C", 1), 0);
  ColumnMask mask({1, 1, 1000, 1000});
  mask.set(0, 0, 999, {0, 0, 0, 1});
  const std::string picture = terminal_picture(mask, {}, 10, 10);
  EXPECT_EQ(std::count(picture.begin(), picture.end(), '#'), 99);
  EXPECT_EQ(picture.substr(0, 14), "  |#########*|");
}

TEST(Picture, rectangular_and_empty_masks_are_drawn) {
  ASSERT_EQ(setenv("LC_ALL", "C", 1), 0);
  EXPECT_EQ(terminal_picture(masks::causal({1, 1, 1, 5}), {}, 64, 32), "  |#####|\n");
  EXPECT_EQ(terminal_picture(ColumnMask({1, 1, 0, 5}), {}, 64, 32), "(no cells)\n");
}

TEST(Picture, svg_draws_every_run_and_escapes_its_title) {
  const ColumnMask mask = masks::causal({1, 1, 300, 300});
  const std::string svg = svg_picture(mask, TileMap::build(mask, {128, 128}), {}, "<a & b>");
  EXPECT_NE(svg.find("&lt;a &amp; b&gt;"), std::string::npos);
  EXPECT_NE(svg.find("unmasked tiles: 3"), std::string::npos);
  EXPECT_NE(svg.find("partial tiles: 3"), std::string::npos);
  EXPECT_NE(svg.find("masked tiles: 3"), std::string::npos);
}

TEST(Picture, explain_names_the_interval_that_hides_the_cell) {
  const ColumnMask mask = masks::sliding_window({1, 1, 10, 10}, 3);
  EXPECT_NE(explain_cell(mask, {}, 5, 2).find("row 5 does not see column 2"), std::string::npos);
  EXPECT_NE(explain_cell(mask, {}, 5, 2).find("lies in [LTS, LTE): 5 <= 5 < 10"), std::string::npos);
  EXPECT_NE(explain_cell(mask, {}, 5, 6).find("lies in [UTS, UTE): 0 <= 5 < 6"), std::string::npos);
  EXPECT_NE(explain_cell(mask, {}, 5, 3).find("row 5 sees column 3"), std::string::npos);
}

TEST(Report, numbers_are_grouped_by_thousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
}

}  // namespace
}  // namespace flashmask::app
