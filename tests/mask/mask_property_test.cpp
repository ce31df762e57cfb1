// Random masks against their own definition: canonical form, counts, and every import and export against the others.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "mask/mask_test_support.hpp"

namespace flashmask::masks {
namespace {

using std::int64_t;

int64_t draw(int64_t low, int64_t high) {
  return *rc::gen::inRange<int64_t>(low, high + 1);
}  // both ends included

/// Any int32, mostly near the rows.
std::int32_t draw_row(int64_t rows) {
  switch (draw(0, 15)) {
    case 0:
      return std::numeric_limits<std::int32_t>::min();
    case 1:
      return std::numeric_limits<std::int32_t>::max();
    case 2:
      return *rc::gen::arbitrary<std::int32_t>();
    default:
      return static_cast<std::int32_t>(draw(-3, rows + 3));
  }
}

HiddenRows draw_column(int64_t rows) {
  return {draw_row(rows), draw_row(rows), draw_row(rows), draw_row(rows)};
}

MaskShape draw_shape(int64_t limit) {
  return {draw(1, 2), draw(1, 2), draw(0, limit), draw(0, limit)};
}

/// Raw vectors: overlapping, inverted and out of range runs in any order.
ColumnMask draw_mask(const MaskShape& shape) {
  const auto size = static_cast<std::size_t>(shape.vector_size());
  std::vector<std::int32_t> lts(size), lte(size), uts(size), ute(size);
  for (std::size_t i = 0; i < size; ++i) {
    const HiddenRows c = draw_column(shape.rows);
    lts[i] = c.lts, lte[i] = c.lte, uts[i] = c.uts, ute[i] = c.ute;
  }
  return {shape, lts, lte, uts, ute};
}

/// Hidden straight from the definition, not through the library.
bool hidden(const HiddenRows& c, int64_t i) {
  return (c.lts <= i && i < c.lte) || (c.uts <= i && i < c.ute);
}

bool is_canonical_form(const HiddenRows& c, std::int32_t rows) {
  const HiddenRows none{rows, 0, rows, 0};
  const bool lower = c.lts != none.lts || c.lte != none.lte;
  const bool upper = c.uts != none.uts || c.ute != none.ute;
  if (lower && !(0 <= c.lts && c.lts < c.lte && c.lte <= rows)) return false;
  if (upper && !(0 <= c.uts && c.uts < c.ute && c.ute <= rows)) return false;
  if (lower && upper) return c.ute < c.lts;
  if (lower) return c.lts > 0;
  return !upper || c.uts == 0;
}

TEST(Canonical, every_quadruple_of_small_rows_keeps_its_meaning_and_has_one_form) {
  for (std::int32_t rows = 0; rows <= 5; ++rows) {
    std::map<std::vector<bool>, HiddenRows> form_of;  // hidden rows -> the one form
    const auto visit = [&](const HiddenRows& raw) {
      const HiddenRows c = canonical(raw, rows);
      std::vector<bool> set;
      for (std::int32_t i = 0; i < rows; ++i) {
        ASSERT_EQ(c.hides(i), hidden(raw, i)) << raw.lts << ' ' << raw.lte << ' ' << raw.uts << ' ' << raw.ute;
        set.push_back(hidden(raw, i));
      }
      ASSERT_TRUE(is_canonical_form(c, rows)) << c.lts << ' ' << c.lte << ' ' << c.uts << ' ' << c.ute;
      ASSERT_EQ(canonical(c, rows), c);
      ASSERT_EQ(hidden_count(c), std::count(set.begin(), set.end(), true));
      ASSERT_EQ(form_of.emplace(set, c).first->second, c);
    };
    for (std::int32_t a = -1; a <= rows + 1; ++a) {
      for (std::int32_t b = -1; b <= rows + 1; ++b) {
        for (std::int32_t c = -1; c <= rows + 1; ++c) {
          for (std::int32_t d = -1; d <= rows + 1; ++d) visit({a, b, c, d});
        }
      }
    }
  }
}

RC_GTEST_PROP(Canonical, keeps_the_meaning_of_any_int32_values, ()) {
  const auto rows = static_cast<std::int32_t>(draw(0, 40));
  const HiddenRows raw = draw_column(rows);
  const HiddenRows c = canonical(raw, rows);
  RC_ASSERT(is_canonical_form(c, rows));
  for (std::int32_t i = 0; i < rows; ++i) RC_ASSERT(c.hides(i) == hidden(raw, i));
}

RC_GTEST_PROP(ColumnMask, raw_vectors_have_the_right_cells_counts_and_digest, ()) {
  const ColumnMask raw = draw_mask(draw_shape(24));
  const MaskShape& s = raw.shape();
  const ColumnMask canonical_mask = ColumnMask(raw).canonicalise();
  RC_ASSERT(canonical_mask.is_canonical());
  RC_ASSERT(canonical_mask.digest() == raw.digest());
  int64_t total = 0;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const auto dense = raw.dense(b, h);
      RC_ASSERT(dense == canonical_mask.dense(b, h));
      std::vector<int64_t> counts(static_cast<std::size_t>(s.rows), 0);
      for (int64_t i = 0; i < s.rows; ++i) {
        for (int64_t j = 0; j < s.columns; ++j) {
          const bool visible = !hidden(raw.at(b, h, j), i);
          RC_ASSERT(raw.visible(b, h, i, j) == visible);
          RC_ASSERT(dense[static_cast<std::size_t>(i * s.columns + j)] == (visible ? 1 : 0));
          counts[static_cast<std::size_t>(i)] += visible;
        }
      }
      const int64_t cells = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      RC_ASSERT(raw.row_counts(b, h) == counts);
      RC_ASSERT(raw.visible_cells(b, h) == cells);
      total += cells;
    }
  }
  RC_ASSERT(raw.visible_cells() == total);
}

RC_GTEST_PROP(ColumnMask, equal_cells_and_equal_digests_go_together, ()) {
  const MaskShape shape{1, 1, draw(1, 4), draw(1, 3)};
  const ColumnMask a = draw_mask(shape), b = draw_mask(shape);
  const bool equal = a.dense(0, 0) == b.dense(0, 0);
  RC_ASSERT((a.digest() == b.digest()) == equal);
  RC_ASSERT((ColumnMask(a).canonicalise() == ColumnMask(b).canonicalise()) == equal);
}

RC_GTEST_PROP(Imports, every_mask_survives_each_general_format, ()) {
  const ColumnMask raw = draw_mask(draw_shape(20));
  const ColumnMask mask = ColumnMask(raw).canonicalise();
  RC_ASSERT(from_dense(raw.shape(), to_dense(raw)) == mask);
  RC_ASSERT(from_mask_mod(raw.shape(), to_mask_mod(raw)) == mask);
  const StartEndRowIndices form = to_startend_row_indices(raw);
  RC_ASSERT(from_startend_row_indices(raw.shape(), form.causal, form.vectors, form.values) == mask);
  RC_ASSERT(from_startend_row_indices(raw.shape(), false, 4, [&] {
              std::vector<std::int32_t> values;
              for (int64_t i = 0; i < raw.shape().vector_size(); ++i) {
                const HiddenRows c = raw.view().at(i);
                values.insert(values.end(), {c.lts, c.lte, c.uts, c.ute});
              }
              return values;
            }()) == mask);
}

RC_GTEST_PROP(Imports, block_lists_decide_and_mask_mod_only_inside_partial_blocks, ()) {
  const ColumnMask mask = draw_mask(draw_shape(20)).canonicalise();
  const BlockMask blocks = to_block_mask(mask, draw(1, 7), draw(1, 7));
  std::set<std::vector<int64_t>> partial;
  for (std::size_t line = 0; line < blocks.kv_num_blocks.size(); ++line) {
    for (std::int32_t n = 0; n < blocks.kv_num_blocks[line]; ++n) {
      const std::size_t at = line * static_cast<std::size_t>(blocks.column_blocks()) + static_cast<std::size_t>(n);
      partial.insert({static_cast<int64_t>(line), blocks.kv_indices[at]});
    }
  }
  // Lies wherever the lists already decide.
  const MaskMod lying = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    const int64_t line = (b * mask.shape().heads + h) * blocks.row_blocks() + i / blocks.block_rows;
    return mask.visible(b, h, i, j) == partial.contains({line, j / blocks.block_columns});
  };
  RC_ASSERT(from_block_mask(blocks, lying) == mask);
}

/// Ascending offsets of `count` documents of up to `limit` tokens, empty ones too.
std::vector<std::int32_t> draw_offsets(int64_t count, int64_t limit) {
  std::vector<std::int32_t> offsets{0};
  for (int64_t d = 0; d < count; ++d) offsets.push_back(offsets.back() + static_cast<std::int32_t>(draw(0, limit)));
  return offsets;
}

WindowSide draw_side() {
  return draw(0, 2) == 0 ? WindowSide::unbounded() : WindowSide::keys(draw(0, 6));
}

RC_GTEST_PROP(Imports, cu_seqlens_say_the_definition_and_come_back, ()) {
  const int64_t documents = draw(0, 5);
  const auto q = draw_offsets(documents, 7), k = draw_offsets(documents, 7);
  const bool causal = draw(0, 1) == 1;
  const InsideDocuments inside{.causal = causal, .left = draw_side(), .right = draw_side()};
  RC_ASSERT(sees(from_cu_seqlens(q, k, inside), [&](int64_t i, int64_t j) {
    for (std::size_t d = 0; d + 1 < q.size(); ++d) {
      if (i < q[d] || i >= q[d + 1] || j < k[d] || j >= k[d + 1]) continue;
      const int64_t diagonal = (i - q[d]) + (k[d + 1] - k[d]) - (q[d + 1] - q[d]), column = j - k[d];
      const bool left = inside.left.is_unbounded() || column >= diagonal - inside.left.count();
      const bool right = inside.right.is_unbounded() || column <= diagonal + inside.right.count();
      return left && (causal ? column <= diagonal : right);
    }
    return false;
  }));
  const ColumnMask plain = from_cu_seqlens(q, k, {.causal = causal});
  const CuSeqlens back = to_cu_seqlens(plain);
  RC_ASSERT(from_cu_seqlens(back.q, back.k, {.causal = back.causal}) == plain);
}

RC_GTEST_PROP(Imports, packed_seq_params_are_the_valid_cells_of_the_padded_layout, ()) {
  const int64_t documents = draw(1, 4);
  const auto valid_q = draw_offsets(documents, 6), valid_k = draw_offsets(documents, 6);
  std::vector<std::int32_t> q{0}, k{0};
  for (std::size_t d = 1; d < valid_q.size(); ++d) {
    q.push_back(q.back() + valid_q[d] - valid_q[d - 1] + static_cast<std::int32_t>(draw(0, 3)));
    k.push_back(k.back() + valid_k[d] - valid_k[d - 1] + static_cast<std::int32_t>(draw(0, 3)));
  }
  const bool causal = draw(0, 1) == 1;
  RC_ASSERT(sees(from_packed_seq_params({valid_q, valid_k, q, k}, {.causal = causal}), [&](int64_t i, int64_t j) {
    for (std::size_t d = 0; d + 1 < q.size(); ++d) {
      const int64_t rows = valid_q[d + 1] - valid_q[d], columns = valid_k[d + 1] - valid_k[d];
      if (i < q[d] || i >= q[d] + rows || j < k[d] || j >= k[d] + columns) continue;
      return !causal || j - k[d] <= i - q[d] + columns - rows;
    }
    return false;
  }));
}

RC_GTEST_PROP(Imports, document_ids_are_equality_where_the_caller_says_so, ()) {
  const int64_t batch = draw(1, 2), tokens = draw(0, 7);
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < batch * tokens; ++t) ids.push_back(draw(0, 2));
  const IdZero zero = draw(0, 1) == 0 ? IdZero::padding : IdZero::document;
  const bool causal = draw(0, 1) == 1;
  const auto id = [&](int64_t b, int64_t t) { return ids[static_cast<std::size_t>(b * tokens + t)]; };
  const MaskMod same = [&](int64_t b, int64_t, int64_t i, int64_t j) {
    return id(b, i) == id(b, j) && (zero == IdZero::document || id(b, j) != 0) && (!causal || j <= i);
  };
  const MaskMod same_run = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    for (int64_t t = std::min(i, j); t <= std::max(i, j); ++t) {
      if (id(b, t) != id(b, j)) return false;
    }
    return same(b, h, i, j);
  };
  const MaskShape shape{batch, 1, tokens, tokens};
  RC_ASSERT(from_document_ids(ids, batch, zero, {.causal = causal, .returning = ReturningId::new_document}) ==
            from_mask_mod(shape, same_run));
  const auto outcome = [](auto&& call) -> std::optional<ColumnMask> {
    try {
      return call();
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  // Where two runs a column cannot say it, both refuse.
  RC_ASSERT(outcome([&] {
              return from_document_ids(ids, batch, zero, {.causal = causal, .returning = ReturningId::same_document});
            }) == outcome([&] { return from_mask_mod(shape, same); }));
}

RC_GTEST_PROP(Imports, position_ids_restart_by_either_rule, ()) {
  const int64_t tokens = draw(1, 12);
  std::vector<int64_t> positions;
  for (int64_t t = 0; t < tokens; ++t) positions.push_back(t > 0 && draw(0, 3) > 0 ? positions.back() + 1 : draw(0, 3));
  for (const PositionRule rule : {PositionRule::starts_at_zero, PositionRule::breaks_consecution}) {
    const ColumnMask mask = from_position_ids(positions, 1, rule, false);
    RC_ASSERT(sees(mask, [&](int64_t i, int64_t j) {
      for (int64_t t = std::min(i, j) + 1; t <= std::max(i, j); ++t) {
        const int64_t here = positions[static_cast<std::size_t>(t)],
                      before = positions[static_cast<std::size_t>(t - 1)];
        if (rule == PositionRule::starts_at_zero ? here == 0 : here != before + 1) return false;
      }
      return true;
    }));
  }
}

RC_GTEST_PROP(Imports, attention_masks_kill_columns_only, ()) {
  const int64_t tokens = draw(0, 10), rows = draw(0, tokens);
  std::vector<int64_t> values;
  for (int64_t t = 0; t < tokens; ++t) values.push_back(draw(0, 1));
  const bool causal = draw(0, 1) == 1;
  RC_ASSERT(sees(from_attention_mask(values, 1, causal, rows), [&](int64_t i, int64_t j) {
    return values[static_cast<std::size_t>(j)] == 1 && (!causal || j <= i + tokens - rows);
  }));
}

RC_GTEST_PROP(Imports, attention_slices_of_a_grid_are_their_union, ()) {
  const auto rows = draw_offsets(draw(1, 3), 5), columns = draw_offsets(draw(1, 3), 5);
  std::vector<AttnSlice> slices;
  for (std::size_t r = 0; r + 1 < rows.size(); ++r) {
    for (std::size_t c = 0; c + 1 < columns.size(); ++c) {
      if (draw(0, 2) == 0) continue;
      slices.push_back({rows[r], rows[r + 1], columns[c], columns[c + 1], static_cast<SliceType>(draw(0, 3))});
    }
  }
  const MaskMod in_slices = [&](int64_t, int64_t, int64_t i, int64_t j) {
    return std::ranges::any_of(slices, [&](const AttnSlice& s) {
      if (i < s.row_begin || i >= s.row_end || j < s.column_begin || j >= s.column_end) return false;
      const int64_t row = i - s.row_begin, column = j - s.column_begin;
      const int64_t shift = (s.column_end - s.column_begin) - (s.row_end - s.row_begin);
      const bool lower = column <= row + shift, upper = column >= row;
      return s.type == SliceType::full || (s.type == SliceType::causal && lower) ||
             (s.type == SliceType::inverse_causal && upper) || (s.type == SliceType::bi_causal && lower && upper);
    });
  };
  std::optional<ColumnMask> expected;
  try {
    expected = from_mask_mod({1, 1, rows.back(), columns.back()}, in_slices);
  } catch (const Error&) {
    RC_ASSERT_THROWS_AS(from_attn_slices(rows.back(), columns.back(), slices), Error);
    return;
  }
  RC_ASSERT(from_attn_slices(rows.back(), columns.back(), slices) == *expected);
}

std::vector<Document> draw_documents(int64_t columns, bool fill) {
  std::vector<Document> documents;
  int64_t left = columns;
  for (int64_t d = draw(0, 5); d > 0; --d) {
    Document document{.length = draw(0, left)};
    if (draw(0, 2) == 0) {
      document.prefix = draw(0, document.length);
      for (int64_t rest = document.length - *document.prefix; rest > 0;) {
        document.answers.push_back(draw(1, rest));
        rest -= document.answers.back();
      }
    }
    left -= document.length;
    documents.push_back(document);
  }
  if (fill && left > 0) documents.push_back({.length = left});
  return documents;
}

std::vector<TreeNode> draw_tree(int64_t columns) {
  std::vector<TreeNode> nodes;
  std::vector<int64_t> path;
  for (int64_t n = draw(0, 8), left = columns; n > 0; --n) {
    path.resize(static_cast<std::size_t>(draw(0, std::ssize(path))));
    nodes.push_back({path.empty() ? std::nullopt : std::optional(path.back()), draw(0, std::min<int64_t>(left, 6))});
    left -= nodes.back().length;
    path.push_back(std::ssize(nodes) - 1);
  }
  return nodes;
}

RC_GTEST_PROP(Builders, closed_form_equals_the_counted_cells_for_any_options, ()) {
  const int64_t n = draw(0, 60);
  for (const BuilderName& builder : builder_names()) {
    BuilderOptions o{.rows = n, .batch = draw(1, 2), .mask_heads = draw(1, 2)};
    std::vector<std::vector<Document>> lists;
    for (int64_t b = 0; b < o.batch; ++b) lists.push_back(draw_documents(n, builder.name == "causal_blockwise"));
    o.documents = lists;
    o.window = draw(1, n + 5), o.global = draw(0, n + 5), o.prefix = draw(0, n), o.seed = 7;
    o.left = draw_side(), o.right = draw_side(), o.past = draw_side();
    o.chunk = draw(1, n + 5), o.frame = draw(1, n + 5), o.trees = {draw_tree(n)};
    const int64_t a = draw(0, n), b = draw(a, n), c = draw(b, n), d = draw(c, n);
    o.blocks = {{c, d, d, n}, {a, b, c, d}};
    o.segments = {{b, c - b}, {a, b - a}};
    if (builder.name == "full" || builder.name == "causal" || builder.name == "sliding_window" ||
        builder.name == "window") {
      o.columns = draw(0, 60);
    }
    const ColumnMask mask = build(builder.name, o);
    const auto dense = to_dense(mask);
    const int64_t counted = std::accumulate(dense.begin(), dense.end(), int64_t{0});
    RC_ASSERT(mask.visible_cells() == counted);
    const auto formula = closed_form_visible_cells(builder.name, o);
    if (formula) {
      RC_ASSERT(*formula == counted);
    } else {
      RC_ASSERT(builder.name == "random_eviction" || builder.name == "hash_sparse");
    }
  }
}

}  // namespace
}  // namespace flashmask::masks
