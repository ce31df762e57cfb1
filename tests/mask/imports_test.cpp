// Imports and exports on hand-made examples: what each rule means, its edges, and what is refused how.
#include <limits>

#include "mask/mask_test_support.hpp"

namespace flashmask::masks {
namespace {

using Counts = std::vector<std::int64_t>;
using Ints = std::vector<std::int32_t>;
using Longs = std::vector<std::int64_t>;

TEST(StartEnd, other_forms_are_refused_with_the_accepted_ones) {
  const Ints values(16);
  for (const auto& [causal, vectors] : {std::pair{true, 4}, {false, 1}, {true, 3}, {false, 0}}) {
    const auto text = refusal([&] { from_startend_row_indices({1, 1, 4, 4}, causal, vectors, values); });
    EXPECT_SAYS(text, "causal with 1 (LTS) or 2 (LTS, LTE), not causal with 2 (LTS, UTE) or 4");
  }
  EXPECT_SAYS(refusal([&] { from_startend_row_indices({1, 2, 4, 4}, true, 1, values); }), "1 x 2 x 4 x 1 = 8");
}

TEST(StartEnd, two_causal_vectors_are_lts_and_lte) {
  const ColumnMask mask = from_startend_row_indices({1, 1, 6, 6}, true, 2, Ints{2, 4, 3, 5, 6, 6, 6, 0, 6, 6, 6, 6});
  EXPECT_TRUE(sees(
      mask, [](auto i, auto j) { return j <= i && !(j == 0 && i >= 2 && i < 4) && !(j == 1 && i >= 3 && i < 5); }));
}

TEST(StartEnd, the_smallest_outer_form_is_chosen) {
  const auto form = [](const ColumnMask& mask) {
    const StartEndRowIndices f = to_startend_row_indices(mask);
    EXPECT_EQ(from_startend_row_indices(mask.shape(), f.causal, f.vectors, f.values), mask);
    return std::pair{f.causal, f.vectors};
  };
  const BuilderOptions o{.rows = 64};
  EXPECT_EQ(form(build("causal_document", o)), (std::pair{true, std::int64_t{1}}));
  EXPECT_EQ(form(build("qk_sparse", o)), (std::pair{true, std::int64_t{2}}));
  EXPECT_EQ(form(build("causal_blockwise", o)), (std::pair{true, std::int64_t{2}}));
  EXPECT_EQ(form(build("document", o)), (std::pair{false, std::int64_t{2}}));
  EXPECT_EQ(form(build("full", o)), (std::pair{false, std::int64_t{2}}));
  EXPECT_EQ(form(build("global_sliding_window", o)), (std::pair{false, std::int64_t{4}}));
}

TEST(CuSeqlens, documents_with_other_row_than_column_counts_align_bottom_right) {
  const Ints q{0, 2, 2, 5}, k{0, 4, 5, 7};  // 2 rows of 4 columns, no row of 1 column, 3 rows of 2 columns
  EXPECT_EQ(from_cu_seqlens(q, k).row_counts(0, 0), (Counts{4, 4, 2, 2, 2}));
  const ColumnMask mask = from_cu_seqlens(q, k, {.causal = true});
  EXPECT_EQ(mask.row_counts(0, 0), (Counts{3, 4, 0, 1, 2}));
  EXPECT_TRUE(sees(mask, [](auto i, auto j) { return i < 2 ? j <= i + 2 : i > 2 && j >= 5 && j - 5 <= i - 3; }));
}

TEST(CuSeqlens, empty_documents_vanish) {
  EXPECT_EQ(from_cu_seqlens(Ints{0, 0, 5, 5, 8, 8}, Ints{0, 0, 5, 5, 8, 8}, {.causal = true}),
            from_cu_seqlens(Ints{0, 5, 8}, Ints{0, 5, 8}, {.causal = true}));
  EXPECT_EQ(from_cu_seqlens(Ints{0}, Ints{0}).shape(), (MaskShape{1, 1, 0, 0}));
}

TEST(CuSeqlens, windows_are_measured_from_the_documents_diagonal) {
  const Ints offsets{0, 6, 10};
  const InsideDocuments inside{.left = WindowSide::keys(2), .right = WindowSide::keys(1)};
  const auto same = [](auto i, auto j) { return (i < 6) == (j < 6); };
  EXPECT_TRUE(sees(from_cu_seqlens(offsets, offsets, inside),
                   [&](auto i, auto j) { return same(i, j) && j >= i - 2 && j <= i + 1; }));
  const InsideDocuments causal{.causal = true, .left = WindowSide::keys(2), .right = WindowSide::keys(1)};
  EXPECT_TRUE(sees(from_cu_seqlens(offsets, offsets, causal),
                   [&](auto i, auto j) { return same(i, j) && j >= i - 2 && j <= i; }));
  const Ints q{0, 2}, k{0, 5};  // the diagonal of row i is column i + 3
  EXPECT_TRUE(sees(from_cu_seqlens(q, k, inside), [](auto i, auto j) { return j >= i + 1 && j <= i + 4; }));
}

TEST(CuSeqlens, wrong_offsets_are_refused_by_place) {
  EXPECT_SAYS(refusal([] { from_cu_seqlens(Ints{0, 4, 3}, Ints{0, 4, 8}); }), "cu_seqlens_q[2] = 3 after 4");
  EXPECT_SAYS(refusal([] { from_cu_seqlens(Ints{0, 4}, Ints{1, 4}); }), "cu_seqlens_k[0] = 1");
  EXPECT_SAYS(refusal([] { from_cu_seqlens(Ints{0, 4}, Ints{0, 2, 4}); }), "2 offsets and cu_seqlens_k has 3");
  EXPECT_SAYS(refusal([] { from_cu_seqlens(Ints{}, Ints{0}); }), "cu_seqlens_q is empty");
}

TEST(CuSeqlens, export_finds_documents_gaps_and_refuses_what_is_none) {
  const CuSeqlens offsets = to_cu_seqlens(causal_document({1, 1, 9, 9}, documents_of(Longs{4, 3})));
  EXPECT_TRUE(offsets.causal);
  EXPECT_EQ(offsets.q, (Ints{0, 4, 7, 7, 9}));  // the padding: columns without rows, then rows without columns
  EXPECT_EQ(offsets.k, (Ints{0, 4, 7, 9, 9}));
  EXPECT_SAYS(refusal([] { to_cu_seqlens(build("sliding_window", {.rows = 64})); }),
              "column 1: hidden rows [0, 1) and [9, 64)");
  EXPECT_SAYS(refusal([] { to_cu_seqlens(full({2, 1, 4, 4})); }), "batch = 2");
}

TEST(PackedSeqParams, padding_behind_each_document_is_dead) {
  const Ints valid{0, 3, 5}, padded{0, 4, 8};
  const ColumnMask mask = from_packed_seq_params({valid, valid, padded, padded}, {.causal = true});
  EXPECT_EQ(mask.row_counts(0, 0), (Counts{1, 2, 3, 0, 1, 2, 0, 0}));
  for (const std::int64_t j : {3, 6, 7}) EXPECT_EQ(hidden_count(mask.at(0, 0, j)), 8);
  EXPECT_EQ(mask.at(0, 0, 0), (HiddenRows{3, 8, 8, 0})) << "LTS = padded start + valid length";
  EXPECT_EQ(from_packed_seq_params({valid, valid}), from_cu_seqlens(valid, valid));
  EXPECT_SAYS(refusal([&] { from_packed_seq_params({padded, padded, valid, valid}); }), "swapped?");
}

TEST(DocumentIds, id_zero_is_what_the_caller_says) {
  const Longs ids{0, 0, 1, 1};
  EXPECT_EQ(from_document_ids(ids, 1, IdZero::document).row_counts(0, 0), (Counts{2, 2, 2, 2}));
  EXPECT_EQ(from_document_ids(ids, 1, IdZero::padding).row_counts(0, 0), (Counts{0, 0, 2, 2}));
}

TEST(DocumentIds, a_returning_id_is_refused_or_read_as_named) {
  const Longs ids{1, 1, 2, 1};
  EXPECT_SAYS(refusal([&] { from_document_ids(ids, 1, IdZero::padding); }),
              "id 1 ends at token 2 and comes back at token 3");
  EXPECT_EQ(from_document_ids(ids, 1, IdZero::padding, {.returning = ReturningId::new_document}).row_counts(0, 0),
            (Counts{2, 2, 1, 1}));
  EXPECT_EQ(from_document_ids(ids, 1, IdZero::padding, {.returning = ReturningId::same_document}).row_counts(0, 0),
            (Counts{3, 3, 1, 3}));
  const auto text = refusal([&] {
    from_document_ids(Longs{2, 1, 2, 1, 2, 1, 2}, 1, IdZero::padding, {.returning = ReturningId::same_document});
  });
  EXPECT_SAYS(text, "document_ids: batch 0, head 0, column 0: the hidden rows form 3 runs [1, 2), [3, 4), [5, 6)");
}

TEST(DocumentIds, batch_rows_are_read_apart_and_bad_ids_named) {
  const ColumnMask mask = from_document_ids(Longs{1, 1, 2, 1, 2, 2}, 2, IdZero::padding, {.causal = true});
  EXPECT_EQ(mask.row_counts(0, 0), (Counts{1, 2, 1}));
  EXPECT_EQ(mask.row_counts(1, 0), (Counts{1, 1, 2}));
  EXPECT_SAYS(refusal([] { from_document_ids(Longs{1, 1, 1, -1}, 2, IdZero::padding); }), "batch 1, token 1: id = -1");
  EXPECT_SAYS(refusal([] { from_document_ids(Longs{1, 1, 1}, 2, IdZero::padding); }), "3 values for batch = 2");
}

TEST(PositionIds, every_batch_row_starts_a_document) {
  const ColumnMask mask = from_position_ids(Longs{0, 1, 2, 3, 0, 1}, 2, PositionRule::breaks_consecution, true);
  EXPECT_EQ(mask.row_counts(0, 0), (Counts{1, 2, 3}));
  EXPECT_EQ(mask.row_counts(1, 0), (Counts{1, 1, 2}));
  EXPECT_SAYS(refusal([] {
                from_position_ids(Longs{0, -1}, 1, PositionRule::starts_at_zero, true);
              }),
              "token 1: position = -1");
}

TEST(AttentionMask, padding_columns_are_dead_left_and_right) {
  EXPECT_EQ(from_attention_mask(Longs{0, 0, 1, 1}, 1, true).row_counts(0, 0), (Counts{0, 0, 1, 2}));
  EXPECT_EQ(from_attention_mask(Longs{1, 1, 0, 0}, 1, true).row_counts(0, 0), (Counts{1, 2, 2, 2}));
  EXPECT_EQ(from_attention_mask(Longs{1, 1, 0, 1}, 1, false).row_counts(0, 0), (Counts{3, 3, 3, 3}));
  EXPECT_EQ(from_attention_mask(Longs{0, 1, 1, 1}, 1, true, 2).row_counts(0, 0), (Counts{2, 3}));
  EXPECT_SAYS(refusal([] { from_attention_mask(Longs{1, 2}, 1, true); }), "token 1: value 2: expected 0 or 1");
}

TEST(Dense, a_third_run_is_refused_by_place_and_runs) {
  std::vector<std::uint8_t> cells(2 * 6 * 2, 1);
  for (const std::size_t row : {0, 2, 3, 5}) cells[12 + row * 2 + 1] = 0;
  const auto text = refusal([&] { from_dense({1, 2, 6, 2}, cells); });
  EXPECT_SAYS(text, "dense: batch 0, head 1, column 1: the hidden rows form 3 runs [0, 1), [2, 4), [5, 6)");
  EXPECT_SAYS(refusal([&] { from_dense({1, 2, 6, 3}, cells); }), "1 x 2 x 6 x 3 = 36");
}

TEST(MaskMod, causal_is_aligned_top_left_when_lengths_differ) {
  const ColumnMask mask = from_mask_mod({1, 1, 3, 5}, [](auto, auto, auto row, auto column) { return row >= column; });
  EXPECT_EQ(mask.row_counts(0, 0), (Counts{1, 2, 3}));
  const ColumnMask heads = from_mask_mod(
      {1, 2, 3, 3}, [](auto, auto head, auto row, auto column) { return head == 0 ? row == column : row >= column; });
  EXPECT_EQ(heads.row_counts(0, 0), (Counts{1, 1, 1}));
  EXPECT_EQ(heads.row_counts(0, 1), (Counts{1, 2, 3}));
  EXPECT_SAYS(refusal([] { from_mask_mod({1, 1, 3, 3}, MaskMod()); }), "mask_mod is empty");
}

TEST(BlockMask, absent_blocks_are_hidden_and_full_ones_visible_whatever_mask_mod_says) {
  BlockMask blocks{{1, 1, 5, 5}, 2, 2, {1, 1, 1}, {0, 0, 0, 1, 0, 0, 2, 0, 0}, {0, 1, 0}, {0, 0, 0, 0, 0, 0, 0, 0, 0}};
  const MaskMod causal = [](auto, auto, auto row, auto column) { return row >= column; };
  EXPECT_TRUE(sees(from_block_mask(blocks, causal), [](std::int64_t i, std::int64_t j) {
    return (i / 2 == j / 2 && i >= j) || (i / 2 == 1 && j / 2 == 0);
  }));
  blocks.full_kv_indices[3] = 1;  // the partial block of row block 1
  EXPECT_SAYS(refusal([&] { from_block_mask(blocks, causal); }),
              "row block 1, column block 1 of plane 0 is named twice");
  blocks.full_kv_indices[3] = 3;
  EXPECT_SAYS(refusal([&] { from_block_mask(blocks, causal); }), "column block 3 in row block 1");
  blocks.full_kv_num_blocks[1] = 4;
  EXPECT_SAYS(refusal([&] { from_block_mask(blocks, causal); }), "4 blocks in row block 1");
  blocks.kv_indices.pop_back();
  EXPECT_SAYS(refusal([&] { from_block_mask(blocks, causal); }), "kv_indices has 8 entries: expected 9");
}

TEST(BlockMask, export_lists_full_and_partial_blocks_of_ragged_masks) {
  const BlockMask blocks = to_block_mask(causal({1, 1, 5, 5}), 2, 2);
  EXPECT_EQ(blocks.kv_num_blocks, (Ints{1, 1, 0}));
  EXPECT_EQ(blocks.full_kv_num_blocks, (Ints{0, 1, 3}));  // the ragged last row sees all columns
  EXPECT_EQ(blocks.kv_indices, (Ints{0, 0, 0, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(blocks.full_kv_indices, (Ints{0, 0, 0, 0, 0, 0, 0, 1, 2}));
  const BlockMask apart = to_block_mask(document({1, 1, 5, 5}, documents_of(Longs{4, 1})), 2, 2);
  EXPECT_EQ(apart.kv_num_blocks, (Ints{0, 0, 0})) << "a ragged block that is hidden or full is not partial";
  EXPECT_EQ(apart.full_kv_num_blocks, (Ints{2, 2, 1}));
}

TEST(AttnSlices, the_four_types_on_tall_and_wide_slices) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{3, 5}, {5, 3}, {4, 4}}) {
    const std::int64_t shift = columns - rows;
    const auto slice = [&](SliceType type) {
      return from_attn_slices(rows + 2, columns + 1, std::vector<AttnSlice>{{1, 1 + rows, 1, 1 + columns, type}});
    };
    const auto inside = [&](auto i, auto j) { return i >= 1 && i <= rows && j >= 1 && j <= columns; };
    EXPECT_TRUE(sees(slice(SliceType::full), inside));
    EXPECT_TRUE(sees(slice(SliceType::causal), [&](auto i, auto j) { return inside(i, j) && j <= i + shift; }));
    EXPECT_TRUE(sees(slice(SliceType::inverse_causal), [&](auto i, auto j) { return inside(i, j) && j >= i; }));
    EXPECT_TRUE(
        sees(slice(SliceType::bi_causal), [&](auto i, auto j) { return inside(i, j) && j >= i && j <= i + shift; }));
  }
}

TEST(AttnSlices, overlap_and_too_many_runs_are_refused_by_place) {
  const std::vector<AttnSlice> twice{{0, 4, 0, 4, SliceType::causal}, {3, 6, 2, 4, SliceType::full}};
  EXPECT_SAYS(refusal([&] { from_attn_slices(6, 4, twice); }), "slices 0 and 1 both hold row 3, column 2");
  const std::vector<AttnSlice> touching{{0, 4, 0, 4, SliceType::causal}, {4, 6, 0, 4, SliceType::full}};
  EXPECT_EQ(from_attn_slices(6, 4, touching).row_counts(0, 0), (Counts{1, 2, 3, 4, 4, 4}));
  const std::vector<AttnSlice> comb{{1, 2, 0, 1}, {3, 4, 0, 1}};
  EXPECT_SAYS(refusal([&] { from_attn_slices(6, 1, comb); }),
              "column 0: the hidden rows form 3 runs [0, 1), [2, 3), [4, 6)");
  const std::vector<AttnSlice> outside{{0, 7, 0, 1}};
  EXPECT_SAYS(refusal([&] { from_attn_slices(6, 1, outside); }), "slice 0: rows [0, 7)");
}

}  // namespace
}  // namespace flashmask::masks
