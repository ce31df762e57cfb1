// Files from strangers: the fuzzer's corpus and its recorded findings, and texts made to hurt.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "format/errors.hpp"
#include "format/json.hpp"
#include "format/mask_json.hpp"
#include "format/workload.hpp"

namespace flashmask::format {
namespace {

/// Feeds a text to both parsers; only flashmask::Error may come out, with a text of reasonable length.
void feed(const std::string& text, const std::string& name) {
  const std::string workload = error_of([&] { builder_options(parse_workload(text, name)); });
  const std::string mask = error_of([&] { parse_mask_description(text, name); });
  EXPECT_LT(workload.size(), 2000U) << name;
  EXPECT_LT(mask.size(), 2000U) << name;
}

TEST(Hostile, the_corpus_of_the_fuzzer_is_parsed_or_refused) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FLASHMASK_CORPUS)) {
    feed(read_file(entry.path().string()), entry.path().filename().string());
    ++files;
  }
  EXPECT_GE(files, 8);
}

TEST(Hostile, every_prefix_and_every_changed_byte_of_a_good_file_is_parsed_or_refused) {
  const std::string good = to_json(generate("grpo:4,2,3", {.rows = 25}));
  for (std::size_t i = 0; i < good.size(); ++i) {
    feed(good.substr(0, i), "prefix");
    for (const char c : {'\0', '9', '-', '[', '{', '"', '\xff'}) {
      std::string changed = good;
      changed[i] = c;
      feed(changed, "changed");
    }
  }
}

TEST(Hostile, big_numbers_deep_nesting_and_many_members_cost_nothing) {
  feed(std::string(1 << 22, '['), "open arrays");
  std::string many = "{";
  for (int i = 0; i < 100000; ++i) many += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":0";
  EXPECT_TRUE(contains(error_of([&] { parse_json(many + "}", "t"); }), "more than 256 members"));
  const std::string head = R"({"format":"flashmask.workload","version":1,"rows":)";
  for (const char* rows :
       {"9223372036854775807", "-9223372036854775808", "18446744073709551616", "1e18", "\"8\"", "null"}) {
    const std::string text = head + rows + R"(,"batch":[{"documents":[]}]})";
    EXPECT_TRUE(contains(error_of([&] { parse_workload(text, "t"); }), "t: rows: ")) << rows;
  }
  // Lengths that overflow 64 bits when added are out of range one by one.
  const std::string sum = head + R"(8,"batch":[{"documents":[9223372036854775807,9223372036854775807,10]}]})";
  EXPECT_TRUE(contains(error_of([&] { parse_workload(sum, "t"); }), "documents[0]: 9223372036854775807 is outside"));
}

}  // namespace
}  // namespace flashmask::format
