// Builders against the sentence that defines each, cell by cell, square and rectangular; their refusals; ColumnMask.
#include <algorithm>
#include <limits>
#include <numeric>

#include "mask/mask_test_support.hpp"

namespace flashmask::masks {
namespace {

using std::int64_t;

/// Counts by the dense matrix, which shares no code with the vectors' arithmetic.
int64_t dense_count(const ColumnMask& mask) {
  const auto dense = to_dense(mask);
  return std::accumulate(dense.begin(), dense.end(), int64_t{0});
}

TEST(Builders, closed_form_equals_the_dense_count_at_many_sizes) {
  for (const BuilderName& builder : builder_names()) {
    for (const int64_t n : {0, 1, 2, 3, 7, 8, 16, 17, 40, 97, 128, 200}) {
      const BuilderOptions options{.rows = n, .batch = 2, .mask_heads = 2};
      const ColumnMask mask = build(builder.name, options);
      EXPECT_TRUE(mask.is_canonical()) << builder.name;
      EXPECT_EQ(mask.shape(), shape_of(options)) << builder.name;
      const int64_t counted = dense_count(mask);
      const auto per_row = mask.row_counts(1, 1);
      EXPECT_EQ(mask.visible_cells(), counted) << builder.name << " n=" << n;
      EXPECT_EQ(mask.visible_cells(1, 1), std::accumulate(per_row.begin(), per_row.end(), int64_t{0})) << builder.name;
      const auto formula = closed_form_visible_cells(builder.name, options);
      const bool random = builder.name == "random_eviction" || builder.name == "hash_sparse";
      ASSERT_EQ(formula.has_value(), !random) << builder.name;
      if (formula) {
        EXPECT_EQ(*formula, counted) << builder.name << " n=" << n;
      }
    }
  }
}

/// Checks a builder where rows are all, some and none of 50 tokens, against a predicate of (row's token, column).
template <typename Build, typename Visible>
void expect_tokens(Build&& builder, Visible&& visible) {
  for (const int64_t rows : {50, 13, 1, 0}) {
    const ColumnMask mask = builder(MaskShape{1, 1, rows, 50});
    EXPECT_TRUE(sees(mask, [&](int64_t i, int64_t j) { return visible(i + 50 - rows, j); })) << "rows " << rows;
  }
}

TEST(Builders, token_builders_say_their_sentence) {
  const auto far = [](int64_t t, int64_t j) { return std::abs(t - j); };
  expect_tokens([](auto s) { return sliding_window(s, 7); }, [](auto t, auto j) { return j <= t && t - j < 7; });
  expect_tokens([](auto s) { return sliding_window(s, 1); }, [](auto t, auto j) { return j == t; });
  expect_tokens([](auto s) { return global_sliding_window(s, 4, 6); },
                [&](auto t, auto j) { return t < 4 || j < 4 || far(t, j) <= 6; });
  expect_tokens([](auto s) { return prefix_lm_causal(s, 11); }, [](auto t, auto j) { return j < 11 || j <= t; });
  expect_tokens([](auto s) { return chunked(s, 8); }, [](auto t, auto j) { return j <= t && t / 8 == j / 8; });
  expect_tokens([](auto s) { return video_block_causal(s, 8); }, [](auto t, auto j) { return j / 8 <= t / 8; });
  expect_tokens([](auto s) { return video_block_causal(s, 8, WindowSide::keys(2)); },
                [](auto t, auto j) { return j / 8 <= t / 8 && t / 8 - j / 8 <= 2; });
  expect_tokens([](auto s) { return window(s, WindowSide::keys(5), WindowSide::keys(3)); },
                [](auto t, auto j) { return j >= t - 5 && j <= t + 3; });
  expect_tokens([](auto s) { return window(s, WindowSide::keys(int64_t{1} << 60), WindowSide::keys(3)); },
                [](auto t, auto j) { return j <= t + 3; });
  const std::vector<SparseBlock> blocks{{20, 30, 30, 45}, {2, 9, 10, 50}};
  expect_tokens([&](auto s) { return qk_sparse_blocks(s, blocks); },
                [&](auto t, auto j) {
                  return j <= t && std::ranges::none_of(blocks, [&](const SparseBlock& b) {
                           return j >= b.column_begin && j < b.column_end && t >= b.row_begin && t < b.row_end;
                         });
                });
  const std::vector<Segment> segments{{30, 9}, {4, 10}};
  expect_tokens([&](auto s) { return qk_sparse(s, segments); },
                [&](auto t, auto j) {
                  return j <= t && std::ranges::none_of(segments, [&](const Segment& g) {
                           return j >= g.begin && j < g.begin + g.length && t >= g.begin && t < g.begin + g.length;
                         });
                });
}

TEST(Builders, document_builders_say_their_sentence) {
  // Documents [0, 20) and [20, 45), then 5 tokens of padding; in the second a prefix of 7 and answers of 10, 5 and 3.
  const std::vector<Document> packed{{.length = 20}, {.length = 25, .prefix = 7, .answers = {10, 5, 3}}};
  const auto same = [](auto t, auto j) { return t < 45 && j < 45 && (t < 20) == (j < 20); };
  const auto answer_of = [](int64_t t) {  // the first document: prefix 5, answers of 5, 5 and 5
    for (const int64_t end : {5, 10, 15, 20, 27, 37, 42, 45}) {
      if (t < end) return end;
    }
    return int64_t{50};
  };
  const auto question = [](int64_t j) { return j < 5 || (j >= 20 && j < 27); };
  expect_tokens([&](auto s) { return causal_document(s, packed); },
                [&](auto t, auto j) { return same(t, j) && j <= t; });
  expect_tokens([&](auto s) { return document(s, packed); }, same);
  expect_tokens([&](auto s) { return share_question(s, packed); },
                [&](auto t, auto j) { return same(t, j) && j <= t && (question(j) || answer_of(t) == answer_of(j)); });
  expect_tokens([&](auto s) { return prefix_lm_document(s, packed); },
                [&](auto t, auto j) { return same(t, j) && (j <= t || question(j)); });
  const std::vector<Document> filling{{.length = 20}, {.length = 11}, {.length = 19}};
  expect_tokens([&](auto s) { return causal_blockwise(s, filling); },
                [](auto t, auto j) {
                  const auto of = [](auto x) { return x < 20 ? 0 : x < 31 ? 1 : 2; };
                  return j <= t && (of(t) == of(j) || of(t) == 2);
                });
}

TEST(Builders, batch_rows_take_their_own_documents) {
  const Packing each(
      std::vector<std::vector<Document>>{{{.length = 3}, {.length = 1}}, {{.length = 2}, {.length = 2}}});
  const ColumnMask mask = causal_document({2, 2, 4, 4}, each);
  EXPECT_EQ(mask.row_counts(0, 1), (std::vector<int64_t>{1, 2, 3, 1}));
  EXPECT_EQ(mask.row_counts(1, 0), (std::vector<int64_t>{1, 2, 1, 2}));
  EXPECT_SAYS(refusal([&] { causal_document({3, 1, 4, 4}, each); }), "2 document lists for batch = 3");
}

TEST(Builders, random_eviction_is_causal_seeded_and_differs_by_head) {
  const ColumnMask mask = random_eviction({2, 2, 300, 300}, 5);
  EXPECT_EQ(mask, random_eviction({2, 2, 300, 300}, 5));
  EXPECT_NE(mask, random_eviction({2, 2, 300, 300}, 6));
  EXPECT_NE(mask.dense(0, 0), mask.dense(0, 1));
  EXPECT_NE(mask.dense(0, 0), mask.dense(1, 0));
  int64_t evicted_at_once = 0, never_evicted = 0;
  for (int64_t j = 0; j < 300; ++j) {
    EXPECT_TRUE(mask.visible(0, 0, j, j)) << "a row always sees itself";
    const HiddenRows c = mask.at(0, 0, j);
    evicted_at_once += c.lts == j + 1;
    never_evicted += c.lts >= c.lte;
  }
  EXPECT_LT(evicted_at_once, 60);
  EXPECT_LT(never_evicted, 60);
  // The expected share of causal cells kept is one half.
  EXPECT_NEAR(static_cast<double>(mask.visible_cells()) / (4 * 300 * 301 / 2), 0.5, 0.05);
}

TEST(Builders, hash_sparse_is_equal_buckets_in_sorted_order) {
  const std::vector<int64_t> queries{3, 1, 3, 3, 1, 7}, keys{1, 3, 3, 9, 1, 3, 1, 7};
  const HashSparse sparse = hash_sparse(queries, keys);
  EXPECT_EQ(sparse.row_order, (std::vector<int64_t>{1, 4, 0, 2, 3, 5}));
  EXPECT_EQ(sparse.column_order, (std::vector<int64_t>{0, 4, 6, 1, 2, 5, 7, 3}));
  EXPECT_TRUE(sees(sparse.mask, [&](int64_t i, int64_t j) {
    const auto query = static_cast<std::size_t>(sparse.row_order[static_cast<std::size_t>(i)]);
    const auto key = static_cast<std::size_t>(sparse.column_order[static_cast<std::size_t>(j)]);
    return queries[query] == keys[key] && key <= query + 2;
  }));
}

TEST(Builders, illegal_arguments_are_refused_by_name) {
  const MaskShape s{1, 1, 16, 16};
  EXPECT_SAYS(refusal([&] { sliding_window(s, 0); }), "window = 0 keys: expected at least 1");
  EXPECT_SAYS(refusal([&] { window(s, WindowSide::keys(-1), WindowSide::unbounded()); }), "left = -1 keys");
  EXPECT_SAYS(refusal([&] { global_sliding_window(s, -1, 2); }), "global = -1");
  EXPECT_SAYS(refusal([&] { global_sliding_window(s, 1, -2); }), "window = -2");
  EXPECT_SAYS(refusal([&] { prefix_lm_causal(s, 17); }), "prefix = 17: expected 0 to columns = 16");
  EXPECT_SAYS(refusal([&] { chunked(s, 0); }), "chunk = 0");
  EXPECT_SAYS(refusal([&] { video_block_causal(s, 0); }), "frame = 0");
  EXPECT_SAYS(refusal([&] {
                causal_document(s, std::vector<Document>{{.length = 9}, {.length = 8}});
              }),
              "document 1 of 8 tokens starts at 9 and ends beyond columns = 16");
  EXPECT_SAYS(refusal([&] { causal_blockwise(s, std::vector<Document>{{.length = 15}}); }),
              "documents of 15 tokens for columns = 16");
  EXPECT_SAYS(refusal([&] { prefix_lm_document(s, std::vector<Document>{{.length = 4, .prefix = 5}}); }),
              "prefix = 5: expected 0 to its length 4");
  EXPECT_SAYS(refusal([&] { share_question(s, std::vector<Document>{{.length = 4, .prefix = 1, .answers = {2}}}); }),
              "prefix 1 + answers 2 = 3: expected its length 4");
  EXPECT_SAYS(refusal([&] {
                document({1, 1, 17, 16}, std::vector<Document>{{.length = 4}});
              }),
              "rows must not exceed columns");
  const std::vector<SparseBlock> above{{4, 8, 7, 16}}, twice{{0, 4, 4, 8}, {3, 5, 8, 9}};
  EXPECT_SAYS(refusal([&] { qk_sparse_blocks(s, above); }), "expected a range inside [8, 16), below the diagonal");
  EXPECT_SAYS(refusal([&] { qk_sparse_blocks(s, twice); }), "columns [3, 5)");
  const std::vector<Segment> overlap{{0, 4}, {3, 2}};
  EXPECT_SAYS(refusal([&] { qk_sparse(s, overlap); }), "segment of 2 tokens from 3");
  const std::vector<std::vector<TreeNode>> wrong_order{{{{}, 2}, {0, 1}, {0, 1}, {1, 1}}}, too_long{{{{}, 17}}};
  EXPECT_SAYS(refusal([&] { prefix_tree(s, wrong_order); }), "node 3: parent = 1");
  EXPECT_SAYS(refusal([&] { prefix_tree(s, too_long); }), "node 0 ends at token 17");
}

TEST(Builders, parts_of_other_extents_are_refused) {
  const std::vector<ColumnMask> parts{full({1, 1, 4, 4}), full({1, 2, 4, 5})};
  EXPECT_SAYS(refusal([&] { per_head(parts); }), "per_head: part 1 has columns = 5: expected 4");
  EXPECT_SAYS(refusal([&] { stack_batch(parts); }), "stack_batch: part 1 has heads = 2: expected 1");
  EXPECT_SAYS(refusal([] { per_head({}); }), "no parts");
}

TEST(Builders, an_unknown_name_is_refused_with_the_known_ones) {
  const auto text = refusal([] { build("casual", {.rows = 4}); });
  EXPECT_SAYS(text, "\"casual\"");
  for (const BuilderName& builder : builder_names()) EXPECT_SAYS(text, std::string(builder.name));
  EXPECT_SAYS(refusal([] { closed_form_visible_cells("casual", {.rows = 4}); }), "\"casual\"");
}

TEST(Builders, the_options_listed_for_a_name_are_those_that_change_its_mask) {
  const BuilderOptions plain{.rows = 64};
  const auto with = [&](auto set) {
    BuilderOptions options = plain;
    set(options);
    return options;
  };
  const std::vector<std::pair<std::string_view, BuilderOptions>> changes{
      {"window", with([](auto& o) { o.window = 3; })},
      {"global", with([](auto& o) { o.global = 5; })},
      {"documents", with([](auto& o) {
         o.documents = std::vector<Document>{{13, 3, {5, 5}}, {51, {}, {}}};
       })},
      {"prefix", with([](auto& o) { o.prefix = 3; })},
      {"seed", with([](auto& o) { o.seed = 3; })},
      {"left", with([](auto& o) { o.left = WindowSide::keys(3); })},
      {"right", with([](auto& o) { o.right = WindowSide::keys(3); })},
      {"blocks", with([](auto& o) {
         o.blocks = {{4, 8, 32, 40}};
       })},
      {"segments", with([](auto& o) {
         o.segments = {{9, 4}};
       })},
      {"chunk", with([](auto& o) { o.chunk = 5; })},
      {"frame", with([](auto& o) { o.frame = 5; })},
      {"past", with([](auto& o) { o.past = WindowSide::keys(1); })},
      {"trees", with([](auto& o) {
         o.trees = {{{{}, 10}, {0, 20}, {0, 34}}};
       })},
      {"buckets", with([](auto& o) { o.buckets = 3; })}};
  for (const BuilderName& builder : builder_names()) {
    const ColumnMask mask = build(builder.name, plain);
    for (const auto& [name, options] : changes) {
      const bool listed = std::ranges::find(builder.options, name) != builder.options.end();
      EXPECT_EQ(build(builder.name, options) != mask, listed) << builder.name << ", " << name;
    }
  }
}

TEST(ColumnMask, a_new_mask_hides_nothing_and_is_canonical) {
  const ColumnMask mask(MaskShape{2, 3, 5, 4});
  EXPECT_TRUE(mask.is_canonical());
  EXPECT_EQ(mask.visible_cells(), 2 * 3 * 5 * 4);
  EXPECT_EQ(mask.at(1, 2, 3), (HiddenRows{5, 0, 5, 0}));
}

TEST(ColumnMask, set_reaches_one_column_and_knows_whether_it_stays_canonical) {
  ColumnMask mask(MaskShape{2, 3, 5, 4});
  mask.set(1, 2, 3, {2, 5, 5, 0});
  EXPECT_TRUE(mask.is_canonical());
  EXPECT_EQ(mask.visible_cells(), 2 * 3 * 5 * 4 - 3);
  EXPECT_FALSE(mask.visible(1, 2, 2, 3));
  mask.set(0, 0, 0, {0, 9, 0, 0});
  EXPECT_FALSE(mask.is_canonical());
  EXPECT_EQ(mask.canonicalise().at(0, 0, 0), (HiddenRows{5, 0, 0, 5}));
}

TEST(ColumnMask, digest_depends_on_every_extent) {
  const std::uint64_t digest = ColumnMask(MaskShape{2, 3, 4, 6}).digest();
  for (const MaskShape& other : {MaskShape{3, 2, 4, 6}, MaskShape{2, 3, 6, 4}, MaskShape{1, 3, 4, 12}}) {
    EXPECT_NE(ColumnMask(other).digest(), digest);
  }
}

TEST(ColumnMask, wrong_extents_lengths_and_places_are_refused_by_name) {
  EXPECT_SAYS(refusal([] { ColumnMask(MaskShape{1, 1, -1, 4}); }), "mask rows = -1");
  EXPECT_SAYS(refusal([] { ColumnMask(MaskShape{1, 1, 4, int64_t{1} << 31}); }), "mask columns = 2147483648");
  constexpr int64_t most = std::numeric_limits<std::int32_t>::max();
  EXPECT_SAYS(refusal([] { ColumnMask(MaskShape{most, most, 4, most}); }), "batch x heads x columns");
  const std::vector<std::int32_t> four(4), three(3);
  EXPECT_SAYS(refusal([&] { ColumnMask({1, 1, 4, 4}, four, four, three, four); }), "vector uts has 3 elements");
  const ColumnMask mask(MaskShape{2, 3, 5, 4});
  EXPECT_SAYS(refusal([&] { (void)mask.at(2, 0, 0); }), "batch row 2");
  EXPECT_SAYS(refusal([&] { (void)mask.at(0, 3, 0); }), "mask head 3");
  EXPECT_SAYS(refusal([&] { (void)mask.at(0, 0, 4); }), "column 4");
  EXPECT_SAYS(refusal([&] { (void)mask.visible(0, 0, 5, 0); }), "row 5");
  EXPECT_SAYS(refusal([&] { (void)ColumnMask(MaskShape{1, 1, 1 << 20, 1 << 12}).dense(0, 0); }), "at most 2147483648");
}

}  // namespace
}  // namespace flashmask::masks
