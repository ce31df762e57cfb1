#include "format/mask_json.hpp"

#include <gtest/gtest.h>

#include "format/errors.hpp"
#include "format/workload.hpp"

namespace flashmask::format {
namespace {

std::string description(const std::string& members) {
  return "{\"format\":\"flashmask.mask\",\"version\":1," + members + "}";
}

std::string error(const std::string& members) {
  return error_of([&] { build_mask(parse_mask_description(description(members), "m.json")); });
}

TEST(MaskFile, vectors_round_trip_as_they_are) {
  const ColumnMask mask({1, 2, 5, 2}, {1, 9, 2147483647, 0}, {3, -4, 0, 5}, {0, 0, 0, 0}, {1, 2, -2147483647 - 1, 4});
  const MaskDescription read = parse_mask_description(to_json(mask), "t");
  ASSERT_TRUE(read.vectors.has_value());
  EXPECT_EQ(*read.vectors, mask);
  ColumnMask canonical = mask;
  EXPECT_EQ(build_mask(read), canonical.canonicalise());
}

TEST(MaskFile, every_builder_round_trips_by_name) {
  masks::BuilderOptions options;
  options.rows = 96;
  options.batch = 2;
  options.mask_heads = 2;
  options.seed = 7;
  for (const auto& builder : masks::builder_names()) {
    const ColumnMask mask = masks::build(builder.name, options);
    const ColumnMask read = build_mask(parse_mask_description(to_json(builder.name, options), "t"));
    EXPECT_EQ(read, mask) << builder.name;
  }
}

TEST(MaskFile, every_option_round_trips) {
  masks::BuilderOptions options;
  options.rows = 64;
  options.window = 9;
  options.global = 3;
  options.prefix = 5;
  options.left = masks::WindowSide::keys(4);
  options.right = masks::WindowSide::unbounded();
  options.past = masks::WindowSide::keys(2);
  options.chunk = 10;
  options.frame = 6;
  options.buckets = 3;
  options.blocks = {{4, 8, 32, 40}};
  options.segments = {{8, 4}};
  options.documents = std::vector<masks::Document>{{24, 8, {8, 8}}, {40, {}, {}}};
  for (const auto& builder : masks::builder_names()) {
    const std::string text = to_json(builder.name, options);
    EXPECT_EQ(build_mask(parse_mask_description(text, "t")), masks::build(builder.name, options)) << text;
  }
  options.documents = {};
  options.trees = {{{{}, 10}, {0, 20}, {0, 30}}};
  const std::string text = to_json("prefix_tree", options);
  EXPECT_EQ(build_mask(parse_mask_description(text, "t")), masks::build("prefix_tree", options)) << text;
}

TEST(MaskFile, options_that_the_builder_does_not_read_are_refused_with_those_it_reads) {
  EXPECT_TRUE(contains(error(R"("rows":8,"builder":"causal","options":{"window":3})"),
                       "m.json: options: window: builder causal has no use for it; it reads none"));
  EXPECT_TRUE(
      contains(error(R"("rows":8,"builder":"global_sliding_window","options":{"window":3,"chunk":4})"),
               "m.json: options: chunk: builder global_sliding_window has no use for it; it reads window, global"));
  EXPECT_TRUE(
      contains(error(R"("rows":8,"builder":"full","options":{"packing":[]})"), "packing: builder full has no use"));
  EXPECT_TRUE(contains(error(R"("rows":8,"builder":"document","options":{"packing":[{"tree":[{"length":8}]}]})"),
                       "packing: builder document takes documents, not trees"));
  EXPECT_TRUE(contains(error(R"("rows":8,"builder":"prefix_tree","options":{"packing":[{"documents":[8]}]})"),
                       "packing: builder prefix_tree takes trees, not documents"));
  EXPECT_EQ(error(R"("rows":8,"builder":"video_block_causal","options":{"frame":3,"past":1})"), "");
}

TEST(MaskFile, errors_name_the_place_the_value_and_what_is_allowed) {
  EXPECT_TRUE(contains(error(R"("rows":4,"builder":"caussal")"), "caussal"));
  EXPECT_TRUE(contains(error(R"("rows":4,"builder":"caussal")"), "causal_document")) << "the known ones are listed";
  EXPECT_TRUE(contains(error(R"("rows":4,"builder":"\u001b[2J")"), R"(builder: "\u001b[2J": a name has)"));
  EXPECT_TRUE(contains(error(R"("rows":4,"builder":"causal","lts":[])"), "unknown key \"lts\""));
  EXPECT_TRUE(contains(error(R"("rows":4,"builder":"causal","options":{"windw":3})"),
                       "m.json: options: unknown key \"windw\"; known here: window"));
  EXPECT_TRUE(
      contains(error(R"("rows":2147483648,"builder":"causal")"), "rows: 2147483648 is outside [0, 2147483647]"));
  EXPECT_TRUE(
      contains(error(R"("rows":4,"builder":"window","options":{"left":"all"})"), "an integer or \"unbounded\""));
  EXPECT_TRUE(contains(error(R"("rows":4,"builder":"qk_sparse_blocks","options":{"blocks":[[1,2,3]]})"),
                       "blocks[0]: expected an array of 4 integers"));
  EXPECT_TRUE(contains(error(R"("rows":4,"columns":2,"lts":[0,0],"lte":[0,0],"uts":[0,0],"ute":[0])"),
                       "ute: 1 elements, expected batch x heads x columns = 2"));
  EXPECT_TRUE(contains(error(R"("rows":4,"columns":1,"lts":[2147483648],"lte":[0],"uts":[0],"ute":[0])"),
                       "lts[0]: 2147483648 is outside"));
  EXPECT_TRUE(contains(error(R"("rows":4,"columns":1,"lts":[0.5],"lte":[0],"uts":[0],"ute":[0])"), "lts: expected"));
  EXPECT_TRUE(contains(error(R"("rows":4,"batch":4096,"heads":65536,"columns":16777216,"builder":"causal")"),
                       "is more than 16777216"));
  EXPECT_TRUE(contains(error(R"("rows":4)"), "\"lts\" is missing"));
}

}  // namespace
}  // namespace flashmask::format
