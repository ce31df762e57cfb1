// Masks from the formats of other libraries and back (docs/mask.md).
//
// An import is exact or refused: a format is representable iff the hidden rows of every column form at most two runs.
// What is not is refused with invalid_argument naming (batch, head, column) and the runs; nothing is approximated.
// Results are canonical.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "flashmask/builders.hpp"
#include "flashmask/mask.hpp"

namespace flashmask::masks {

// ---- Packed sequences ----

/// What holds inside each document of a packed sequence.
struct InsideDocuments {
  bool causal = false;  ///< row i of a document sees its column j iff j <= i + (its columns - its rows): bottom right
  WindowSide left = WindowSide::unbounded();   ///< keys before a row's own, measured from that diagonal
  WindowSide right = WindowSide::unbounded();  ///< keys behind it; causal allows none
};

/// Offsets of a packed (varlen, THD) batch: document d has rows [q[d], q[d+1]) and columns [k[d], k[d+1]). Both start
/// at 0 and do not descend; equal neighbours are empty documents. batch 1, rows q.back(), columns k.back().
ColumnMask from_cu_seqlens(std::span<const std::int32_t> q, std::span<const std::int32_t> k,
                           const InsideDocuments& inside = {});

/// Megatron's PackedSeqParams: offsets of the padded layout and of the valid tokens alone. A document starts at its
/// padded offset and is as long as its valid tokens; the padding behind it is dead. Empty padded lists: no padding.
struct PackedSeqParams {
  std::span<const std::int32_t> cu_seqlens_q, cu_seqlens_kv;
  std::span<const std::int32_t> cu_seqlens_q_padded{}, cu_seqlens_kv_padded{};
};
ColumnMask from_packed_seq_params(const PackedSeqParams& params, const InsideDocuments& inside = {});

/// What document id 0 stands for. The two readings differ, so the caller names one.
enum class IdZero : std::uint8_t {
  padding,   ///< dead columns and dead rows, wherever they stand
  document,  ///< a document like any other
};
/// What an id means that comes back after another one, e.g. [1, 1, 2, 1].
enum class ReturningId : std::uint8_t {
  refused,        ///< an error that names the tokens
  new_document,   ///< every run of equal ids is a document
  same_document,  ///< equal ids are one document wherever they stand, where two runs a column can say it
};
struct DocumentIdOptions {
  bool causal = false;
  ReturningId returning = ReturningId::refused;
};
/// `ids` is [batch][tokens], ids >= 0; rows = columns = tokens.
ColumnMask from_document_ids(std::span<const std::int64_t> ids, std::int64_t batch, IdZero zero,
                             const DocumentIdOptions& options = {});

/// Where a document starts in a list of positions. Both rules are in use and differ, e.g. on [0, 1, 2, 3, 1].
enum class PositionRule : std::uint8_t {
  starts_at_zero,      ///< wherever the position is 0
  breaks_consecution,  ///< wherever the position is not the one before plus 1
};
/// `positions` is [batch][tokens], positions >= 0; rows = columns = tokens. The first token always starts a document.
ColumnMask from_position_ids(std::span<const std::int64_t> positions, std::int64_t batch, PositionRule rule,
                             bool causal);

/// A 2-D attention mask [batch][columns] of 1 (token) and 0 (padding, left or right or between): padding columns are
/// dead. Padding rows are left as the format leaves them. rows: the last `rows` tokens; default all.
ColumnMask from_attention_mask(std::span<const std::int64_t> values, std::int64_t batch, bool causal,
                               std::optional<std::int64_t> rows = std::nullopt);

// ---- Cells ----

/// 1 (or any other value but 0) visible, 0 hidden; [batch][heads][rows][columns].
ColumnMask from_dense(const MaskShape& shape, std::span<const std::uint8_t> cells);

/// FlexAttention's mask_mod: whether row sees column. Indices are raw, so `row >= column` is aligned to the top left
/// where rows != columns; add columns - rows to the row for the bottom right.
using MaskMod = std::function<bool(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t column)>;
/// Evaluates every cell once.
ColumnMask from_mask_mod(const MaskShape& shape, const MaskMod& mask_mod);

/// FlexAttention's BlockMask arrays. Per (batch, head, row block): `kv_num_blocks` partial blocks, the first entries of
/// the row of column_blocks `kv_indices`; likewise `full_kv_*` for blocks without hidden cells. Blocks in neither list
/// are hidden. The last block of rows or columns may be ragged.
struct BlockMask {
  MaskShape shape;
  std::int64_t block_rows = 128;
  std::int64_t block_columns = 128;
  std::vector<std::int32_t> kv_num_blocks, kv_indices;
  std::vector<std::int32_t> full_kv_num_blocks, full_kv_indices;

  [[nodiscard]] std::int64_t row_blocks() const { return (shape.rows + block_rows - 1) / block_rows; }
  [[nodiscard]] std::int64_t column_blocks() const { return (shape.columns + block_columns - 1) / block_columns; }
};
/// An absent block is hidden whatever mask_mod says, a full one visible whatever it says; mask_mod decides in partial
/// ones. Refuses arrays of the wrong length, indices out of range and blocks named twice.
ColumnMask from_block_mask(const BlockMask& blocks, const MaskMod& mask_mod);

/// Which cells of a slice are visible, for row i' of `rows` and column j' of `columns` counted inside the slice.
enum class SliceType : std::uint8_t {
  full = 0,
  causal = 1,          ///< j' <= i' + (columns - rows): aligned to the slice's bottom right
  inverse_causal = 2,  ///< j' >= i': aligned to its top left
  bi_causal = 3,       ///< both
};
struct AttnSlice {
  std::int64_t row_begin = 0, row_end = 0;
  std::int64_t column_begin = 0, column_end = 0;
  SliceType type = SliceType::full;
};
/// The union of the slices, batch 1, one head. Cells in two slices are refused (such a cell would count twice there).
ColumnMask from_attn_slices(std::int64_t rows, std::int64_t columns, std::span<const AttnSlice> slices);

// ---- Exports ----

/// Every cell, 0 or 1, [batch][heads][rows][columns]. Refuses more than 2^31 cells.
std::vector<std::uint8_t> to_dense(const ColumnMask& mask);

struct CuSeqlens {
  std::vector<std::int32_t> q, k;
  bool causal = false;
};
/// Offsets with from_cu_seqlens(q, k, {.causal}) == mask. Takes masks of one batch row and one head; refuses a mask
/// that is no packed sequence, naming the first column that differs.
CuSeqlens to_cu_seqlens(const ColumnMask& mask);

/// Block lists with from_block_mask(blocks, the mask's own cells) == mask; indices ascend.
BlockMask to_block_mask(const ColumnMask& mask, std::int64_t block_rows = 128, std::int64_t block_columns = 128);
/// The mask's cells as a mask_mod; keeps its own copy.
MaskMod to_mask_mod(const ColumnMask& mask);

/// The outer form with the fewest vectors that says the same (causal preferred), see from_startend_row_indices.
struct StartEndRowIndices {
  bool causal = false;
  std::int64_t vectors = 4;
  std::vector<std::int32_t> values;  ///< [batch][heads][columns][vectors]
};
StartEndRowIndices to_startend_row_indices(const ColumnMask& mask);

}  // namespace flashmask::masks
