#include "format/json.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "format/errors.hpp"

namespace flashmask::format {
namespace {

std::string parse_error(std::string_view text, const JsonLimits& limits = {}) {
  return error_of([&] { parse_json(text, "t", limits); });
}

TEST(Json, parse_then_dump_is_the_identity_on_compact_text) {
  const std::string text = R"({"a":[1,-2,9223372036854775807],"b":[1,"x",null,[2.5,true]],"c":{},"d":[],"e":"\"\n"})";
  EXPECT_EQ(parse_json(text, "t").dump(0), text);
}

TEST(Json, arrays_of_integers_are_held_as_integers_until_another_element_comes) {
  const Json value = parse_json("[[1,2],[1,2,false]]", "t");
  ASSERT_NE((*value.array())[0].integers(), nullptr);
  EXPECT_EQ(*(*value.array())[0].integers(), (Json::Integers{1, 2}));
  ASSERT_NE((*value.array())[1].array(), nullptr);
  EXPECT_EQ((*value.array())[1].array()->size(), 3U);
}

TEST(Json, a_key_given_twice_is_refused_by_name) {
  EXPECT_TRUE(contains(parse_error(R"({"rows":1,"rows":2})"), R"(key "rows" is given twice)"));
  EXPECT_EQ(parse_error(R"({"a":{"rows":1},"b":{"rows":2}})"), "");
}

TEST(Json, every_limit_is_enforced_and_named) {
  EXPECT_TRUE(contains(parse_error("[1,2,3]", {.integers = 2}), "more than 2 integers"));
  EXPECT_EQ(parse_error("[1,2]", {.integers = 2}), "");
  EXPECT_TRUE(contains(parse_error("[[[1]]]", {.depth = 2}), "nested deeper than 2"));
  EXPECT_EQ(parse_error("[[1]]", {.depth = 2}), "");
  EXPECT_TRUE(contains(parse_error(R"(["a","b","c"])", {.values = 3}), "more than 3 values"));
  EXPECT_EQ(parse_error(R"(["a","b"])", {.values = 3}), "");
  EXPECT_TRUE(contains(parse_error("[1,2]", {.bytes = 4}), "5 bytes, at most 4"));
  EXPECT_TRUE(contains(parse_error(std::string(1 << 20, '[')), "nested deeper than 16"));
}

TEST(Json, text_that_is_not_json_is_refused_with_its_place) {
  EXPECT_TRUE(contains(parse_error("{\n\"a\": }"), "line 2, column"));
  for (const char* text : {"", "{", "nul", "[1,]", "{\"a\":1}x", "01", "\"\xff\"", "1e999", "\"\x01\""}) {
    EXPECT_TRUE(contains(parse_error(text), "t: not JSON")) << text;
  }
}

TEST(Json, error_texts_are_short_printable_ascii) {
  const std::string bad = "{\"" + std::string(100000, 'k') + "\x1b[2J\xc2\x9b\":1,\x1b";
  const std::string text = parse_error(bad);
  EXPECT_LT(text.size(), 400U);
  for (const char c : text) EXPECT_TRUE(c >= ' ' && c <= '~') << static_cast<int>(c);
  EXPECT_EQ(printable("\x1b[2J\xff"), R"("\u001b[2J\ufffd")");
}

TEST(Json, numbers_round_trip_and_those_json_lacks_become_null) {
  for (const double x : {0.1, 1e-300, 123456.789, -2.5}) EXPECT_EQ(*parse_json(Json(x).dump(), "t").number(), x);
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(parse_json("18446744073709551615", "t").integer(), nullptr);  // beyond int64: no integer of ours
}

TEST(Json, files_that_cannot_be_read_are_named) {
  EXPECT_TRUE(contains(error_of([] { read_file("/nonexistent/x.json"); }), "/nonexistent/x.json: cannot open"));
  EXPECT_TRUE(contains(error_of([] { read_file("/"); }), "/: cannot"));
  EXPECT_TRUE(contains(error_of([] { read_file("/dev/zero", 1 << 20); }), "longer than the 1048576 bytes"));
}

}  // namespace
}  // namespace flashmask::format
