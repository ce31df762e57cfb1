#include "format/workload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "format/errors.hpp"

namespace flashmask::format {
namespace {

std::vector<std::int64_t> lengths(const Workload& workload, std::size_t batch = 0) {
  std::vector<std::int64_t> out;
  for (const auto& document : workload.batch.at(batch).documents) out.push_back(document.length);
  return out;
}

using Lengths = std::vector<std::int64_t>;

TEST(Generators, every_one_fills_its_rows_and_builds_its_mask) {
  for (const char* spec : {"histogram", "wikipedia", "pack:8192", "pack:8192:2", "equal:7", "one_long+short:0.5",
                           "prime_lengths", "one_token_documents", "grpo:100,4,50", "tree:3,2,64"}) {
    for (const std::int64_t rows : {0, 1000}) {
      if (rows != 0 && std::string_view(spec).starts_with("pack")) continue;
      const Workload workload = generate(spec, {.rows = rows, .batch = 2, .seed = 3});
      EXPECT_NO_THROW(validate(workload)) << spec;
      EXPECT_EQ(workload.batch.size(), 2U) << spec;
      EXPECT_TRUE(rows == 0 || workload.rows == rows) << spec;
      const ColumnMask mask = masks::build(workload.mask, builder_options(workload));
      EXPECT_EQ(mask.shape().rows, workload.rows) << spec;
      EXPECT_GE(mask.visible_cells(), 2 * workload.rows) << spec << ": every token sees itself";
    }
  }
}

TEST(Generators, histogram_follows_its_recipe) {
  const Workload workload = generate("histogram", {.rows = 1 << 20, .batch = 4, .seed = 1});
  std::int64_t documents = 0, between = 0;
  for (std::size_t b = 0; b < 4; ++b) {
    for (const std::int64_t n : lengths(workload, b)) {
      ++documents;
      between += n >= 201 && n <= 1024 ? 1 : 0;
      EXPECT_LE(n, 1 << 18);
    }
  }
  const double mean = 4.0 * (1 << 20) / static_cast<double>(documents);
  EXPECT_NEAR(mean, 1600, 300);  // 1,717 at the linear bucket mean, less for lengths log-uniform in a bucket
  EXPECT_NEAR(static_cast<double>(between) / static_cast<double>(documents), 7111520.0 / 13463214, 0.03);
}

TEST(Generators, no_drawn_document_is_longer_than_a_quarter_of_the_rows) {
  const Workload workload = generate("wikipedia", {.rows = 400, .batch = 16, .seed = 2});
  for (std::size_t b = 0; b < 16; ++b) {
    for (const std::int64_t n : lengths(workload, b)) EXPECT_LE(n, 100);
  }
}

TEST(Generators, a_seed_fixes_the_workload_and_another_changes_it) {
  const GeneratorOptions options{.rows = 8192, .batch = 2, .seed = 5};
  EXPECT_EQ(to_json(generate("histogram", options)), to_json(generate("histogram", options)));
  EXPECT_NE(to_json(generate("histogram", options)),
            to_json(generate("histogram", {.rows = 8192, .batch = 2, .seed = 6})));
  const Workload workload = generate("histogram", options);
  EXPECT_NE(lengths(workload, 0), lengths(workload, 1)) << "batch rows are drawn apart";
}

TEST(Generators, packs_are_the_published_lists) {
  const Workload first = generate("pack:8192:0");
  EXPECT_EQ(first.rows, 8192);
  EXPECT_EQ(lengths(first), (Lengths{3145, 2203, 2844}));
  EXPECT_EQ(first.batch[0].documents[1].prefix, 296);
  const Workload all = generate("pack:8192", {.batch = 4});
  EXPECT_EQ(lengths(all, 1), (Lengths{2481, 1388, 1978, 2345}));
  EXPECT_EQ(lengths(all, 3), lengths(all, 0));
  EXPECT_EQ(generate("pack:131072:1").rows, 131072);
}

TEST(Generators, packs_of_other_lengths_are_the_next_shorter_lists_scaled) {
  const Workload half = generate("pack:4096:0", {.rows = 4096, .batch = 2});
  EXPECT_EQ(half.rows, 4096);
  EXPECT_EQ(lengths(half), (Lengths{1572, 1101, 1423})) << "the last one takes the remainder";
  EXPECT_EQ(lengths(half, 1), lengths(half));
  EXPECT_EQ(half.batch[0].documents[1].prefix, 148);
  EXPECT_EQ(lengths(generate("pack:16384:0")), (Lengths{6290, 4406, 5688}));
  EXPECT_EQ(lengths(generate("pack:65536:0")).size(), 10U);
}

TEST(Generators, synthetic_lengths_are_as_stated) {
  EXPECT_EQ(lengths(generate("equal:3", {.rows = 10})), (Lengths{3, 3, 4}));
  EXPECT_EQ(lengths(generate("one_long+short:0.5", {.rows = 1200})), (Lengths{600, 256, 256, 88}));
  EXPECT_EQ(lengths(generate("one_token_documents", {.rows = 5})), (Lengths{1, 1, 1, 1, 1}));
  const Workload primes = generate("prime_lengths", {.rows = 100000});
  Lengths drawn = lengths(primes);
  drawn.pop_back();  // the last one is cut
  for (const std::int64_t n : drawn) {
    bool prime = n >= 2;
    for (std::int64_t d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    EXPECT_TRUE(prime) << n;
  }
}

TEST(Generators, grpo_repeats_prompt_and_group_and_cuts_the_last) {
  const Workload workload = generate("grpo:4,2,3", {.rows = 25});
  ASSERT_EQ(workload.batch[0].documents.size(), 3U);
  EXPECT_EQ(lengths(workload), (Lengths{10, 10, 5}));
  EXPECT_EQ(workload.batch[0].documents[0].answers, (Lengths{3, 3}));
  EXPECT_EQ(workload.batch[0].documents[2].prefix, 4);
  EXPECT_EQ(workload.batch[0].documents[2].answers, (Lengths{1}));
}

TEST(Generators, tree_lists_nodes_depth_first) {
  const Workload workload = generate("tree:3,2,5");
  EXPECT_EQ(workload.rows, 35);
  Lengths parents;
  for (const auto& node : workload.batch[0].tree) parents.push_back(node.parent.value_or(-1));
  EXPECT_EQ(parents, (Lengths{-1, 0, 1, 1, 0, 4, 4}));
  EXPECT_EQ(generate("tree:2,1,5", {.rows = 23}).batch[0].tree.size(), 5U) << "two trees and a cut one";
}

TEST(Generators, bad_specs_are_refused_with_the_reason) {
  const auto error = [](const char* spec, GeneratorOptions options = {}) {
    return error_of([&] { generate(spec, options); });
  };
  EXPECT_TRUE(contains(error("nothing"), "known: histogram, wikipedia, pack:N[:i]"));
  EXPECT_TRUE(contains(error("histogram:3"), "takes no arguments"));
  EXPECT_TRUE(contains(error("equal"), "expected equal:k"));
  for (const char* spec : {"equal:", "equal:x", "equal:3,", "equal:3,4", "equal:3x", "equal:,3", "equal: 3"}) {
    EXPECT_TRUE(contains(error(spec), "expected equal:k")) << spec;
  }
  EXPECT_TRUE(contains(error("equal:0"), "outside [1"));
  EXPECT_TRUE(contains(error("equal:9000"), "more documents than the 8192 rows"));
  EXPECT_TRUE(contains(error("equal:99999999999999999999"), "expected equal:k"));
  EXPECT_TRUE(contains(error("one_long+short:1.5"), "fraction in (0, 1]"));
  EXPECT_TRUE(contains(error("one_long+short:nan"), "fraction in (0, 1]"));
  EXPECT_TRUE(contains(error("pack:0"), "1 <= N"));
  EXPECT_TRUE(contains(error("pack:99999999999999999999"), "1 <= N"));
  EXPECT_TRUE(contains(error("pack:20"), "20 rows are too few"));
  EXPECT_TRUE(contains(error("pack:8192:3"), "pack 3 of 3"));
  EXPECT_TRUE(contains(error("pack:8192:"), "pack:N:i"));
  EXPECT_TRUE(contains(error("pack:8192", {.rows = 100}), "has 8192 rows, but rows = 100"));
  EXPECT_TRUE(contains(error("grpo:1,2"), "expected grpo:prompt,group,response"));
  EXPECT_TRUE(contains(error("tree:24,16777216,1"), "more than 1048576 documents"));
  EXPECT_TRUE(contains(error("tree:1025,1,1"), "depth 1025"));
  EXPECT_TRUE(contains(error("histogram", {.rows = -1}), "rows must be in [0"));
  EXPECT_TRUE(contains(error("histogram", {.rows = kMaxTokens + 1}), "rows must be in [0"));
  EXPECT_TRUE(contains(error("histogram", {.batch = 0}), "batch must be in [1"));
  EXPECT_TRUE(contains(error("one_token_documents", {.rows = kMaxPieces + 1}), "more than 1048576 documents"));
}

TEST(WorkloadFile, text_and_workload_round_trip) {
  for (const char* spec : {"pack:8192", "histogram", "grpo:100,4,50", "tree:3,2,64"}) {
    const std::string text = to_json(generate(spec, {.batch = 2}));
    EXPECT_EQ(to_json(parse_workload(text, "t")), text) << spec;
  }
}

TEST(WorkloadFile, lengths_may_be_bare_or_objects_and_padding_is_explicit) {
  const Workload workload = parse_workload(
      R"({"format":"flashmask.workload","version":1,"mask":"document","rows":10,"batch":[
          {"documents":[4,{"length":3,"prefix":1}],"padding":3},{"documents":[10]}]})",
      "t");
  EXPECT_EQ(workload.name, "t");
  EXPECT_EQ(lengths(workload, 0), (Lengths{4, 3}));
  const ColumnMask mask = masks::build(workload.mask, builder_options(workload));
  EXPECT_EQ(mask.row_counts(0, 0), (std::vector<std::int64_t>{4, 4, 4, 4, 3, 3, 3, 0, 0, 0}));
}

TEST(WorkloadFile, a_batch_row_of_padding_alone_is_dead) {
  const std::string head = R"({"format":"flashmask.workload","version":1,"rows":4,"mask":")";
  for (const char* row : {R"({"documents":[],"padding":4})", R"({"padding":4})", R"({"documents":[0],"padding":4})"}) {
    for (const char* name : {"causal_document", "document", "share_question", "prefix_lm_document"}) {
      const Workload workload = parse_workload(head + name + R"(","batch":[)" + row + "]}", "t");
      EXPECT_EQ(masks::build(workload.mask, builder_options(workload)).visible_cells(), 0) << name << row;
    }
  }
}

TEST(WorkloadFile, errors_name_the_place_the_value_and_what_is_allowed) {
  const auto error = [](const std::string& members) {
    return error_of(
        [&] { parse_workload("{\"format\":\"flashmask.workload\",\"version\":1," + members + "}", "w.json"); });
  };
  EXPECT_TRUE(contains(error(R"("rows":5,"batch":[{"documents":[3]}])"), "add up to 3 tokens, but rows = 5"));
  EXPECT_TRUE(contains(error(R"("rows":5,"batch":[{"documents":[3,-1]}])"), "w.json: batch[0]: documents[1]: -1"));
  EXPECT_TRUE(contains(error(R"("rows":5,"batch":[{"documents":[3,2.5]}])"), "documents[1]: expected an integer"));
  EXPECT_TRUE(contains(error(R"("rows":5,"rowz":1,"batch":[])"), "unknown key \"rowz\"; known here: format, version"));
  EXPECT_TRUE(contains(error(R"("batch":[])"), "\"rows\" is missing"));
  EXPECT_TRUE(contains(error(R"("rows":5,"batch":[])"), "batch must be in [1"));
  EXPECT_TRUE(contains(error(R"("rows":5,"batch":[{"documents":[5],"tree":[{"length":5}]}])"), "not both"));
  EXPECT_TRUE(contains(error(R"("rows":5,"batch":[{"documents":[5],"tree":[]}])"), "w.json: batch[0]: give"));
  EXPECT_TRUE(contains(error(R"("rows":5,"batch":[{"documents":[],"tree":[{"length":5}]}])"), "not both"));
  EXPECT_TRUE(contains(error(R"("rows":5,"batch":[{"documents":[3]}])"), "w.json: batch row 0"));
  EXPECT_TRUE(
      contains(error(R"("rows":5e0,"batch":[])"), "w.json: rows: expected an integer in [0, 16777216], got the"));
  EXPECT_TRUE(contains(error(R"("rows":5,"batch":[{"documents":[5]},{"tree":[{"length":5}]}])"),
                       "batch row 1: a workload has"));
  EXPECT_TRUE(contains(error(R"("rows":5,"batch":[{"documents":[{"length":5,"prefix":6}]}])"), "prefix 6 is outside"));
  EXPECT_TRUE(contains(error(R"("rows":5,"batch":[{"documents":[{"length":5,"prefix":1,"answers":[3]}]}])"),
                       "prefix + answers = 4"));
  EXPECT_TRUE(
      contains(error(R"("rows":5,"batch":[{"tree":[{"length":2},{"length":3,"parent":1}]}])"), "parent 1 is not"));
  EXPECT_TRUE(
      contains(error(R"("rows":16777216,"batch":[{"padding":16777216},{"padding":16777216}])"), "16777216 tokens"));
  EXPECT_TRUE(contains(error_of([] { parse_workload(R"({"format":"flashmask.mask","version":1})", "w"); }),
                       "format is \"flashmask.mask\", expected \"flashmask.workload\""));
  EXPECT_TRUE(contains(error_of([] { parse_workload(R"({"format":"flashmask.workload","version":2})", "w"); }),
                       "version: 2 is outside [1, 1]"));
}

TEST(WorkloadFile, load_tells_specs_from_files) {
  EXPECT_EQ(load_workload("equal:4").batch[0].documents.size(), 4U);
  EXPECT_TRUE(contains(error_of([] { load_workload("/nonexistent.json"); }), "cannot open"));
  EXPECT_TRUE(contains(error_of([] { load_workload("histgram"); }), "histogram"));  // lists what there is
  EXPECT_TRUE(contains(error_of([] { load_workload("eqal:4"); }), "known: histogram"));
}

}  // namespace
}  // namespace flashmask::format
