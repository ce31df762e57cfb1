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

TEST(Json, a_byte_order_mark_and_nul_bytes_are_refused_wherever_they_stand) {
  const std::string good = R"({"a":1})";
  EXPECT_EQ(error_of([&] { parse_json(good, "t"); }), "");
  EXPECT_TRUE(contains(error_of([&] { parse_json("\xEF\xBB\xBF" + good, "t"); }), "byte order mark"));
  for (std::size_t at = 0; at <= good.size(); ++at) {
    std::string text = good;
    text.insert(at, 1, '\0');
    EXPECT_TRUE(contains(error_of([&] { parse_json(text, "t"); }), "byte " + std::to_string(at) + " is NUL"));
  }
  EXPECT_NE(error_of([&] { parse_json(good + "\xEF\xBB\xBF", "t"); }), "");
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

TEST(Json, kinds_say_which_value_or_which_element_is_no_integer) {
  const auto kind = [](const char* text) { return parse_json(text, "t").kind(); };
  EXPECT_TRUE(contains(kind("1e30"), "the number 1e+30 (integers: no fraction, no exponent, below 2^63)"));
  EXPECT_TRUE(contains(kind("1.0"), "the number 1 (integers: no fraction"));
  EXPECT_TRUE(contains(kind("18446744073709551615"), "the number 1.8446744073709552e+19 (integers"));
  EXPECT_TRUE(contains(kind("[1,2.5,3]"), "an array whose element 1 is the number 2.5"));
  EXPECT_EQ(kind("[1,[2]]"), "an array whose element 1 is an array");
  EXPECT_EQ(kind("[1,2]"), "an array of integers");
}

TEST(Json, texts_for_a_terminal_keep_words_of_any_language_and_no_control_characters) {
  EXPECT_EQ(escaped("plain \u00fc\u65e5\U0001f600.json"), "plain \u00fc\u65e5\U0001f600.json");
  EXPECT_EQ(escaped("\x1b[31m\n\x7f"), "\\x1b[31m\\x0a\\x7f");
  EXPECT_EQ(escaped("\xc2\x9b"
                    "2J"),
            "\\xc2\\x9b"
            "2J")
      << "a control character of eight bits";
  EXPECT_EQ(escaped("\xff\xe6\x97"), "\\xff\\xe6\\x97") << "not UTF-8";
  EXPECT_EQ(escaped(""), "");
}

TEST(Json, files_that_cannot_be_read_are_named) {
  EXPECT_TRUE(contains(error_of([] { read_file("/nonexistent/x.json"); }), "/nonexistent/x.json: cannot open"));
  EXPECT_TRUE(contains(error_of([] { read_file("/"); }), "/: cannot"));
  EXPECT_TRUE(contains(error_of([] { read_file("/dev/zero", 1 << 20); }), "longer than the 1048576 bytes"));
}

}  // namespace
}  // namespace flashmask::format
