// Imports of packed sequences given by offsets.
#include <algorithm>
#include <limits>
#include <string_view>

#include "core/check.hpp"
#include "flashmask/imports.hpp"
#include "mask/token_columns.hpp"

namespace flashmask::masks {
namespace {

using Offsets = std::span<const std::int32_t>;

void check_offsets(std::string_view name, Offsets offsets) {
  core::check(!offsets.empty(), "{} is empty: expected the offsets 0, ..., total", name);
  core::check(offsets[0] == 0, "{}[0] = {}: expected 0", name, offsets[0]);
  for (std::size_t d = 1; d < offsets.size(); ++d) {
    core::check(offsets[d] >= offsets[d - 1],
                "{}[{}] = {} after {}: expected offsets that do not descend; are these "
                "lengths?",
                name, d, offsets[d], offsets[d - 1]);
  }
}

void check_same_count(std::string_view name, Offsets offsets, std::string_view other_name, Offsets other) {
  core::check(offsets.size() == other.size(),
              "{} has {} offsets and {} has {}: expected one more than documents in both", name, offsets.size(),
              other_name, other.size());
}

/// Rows and columns of one document on their axes.
struct Block {
  std::int64_t row_begin, row_end;
  std::int64_t column_begin, column_end;
};

std::int64_t reach_of(std::string_view name, WindowSide side) {
  if (side.is_unbounded()) return std::numeric_limits<std::int32_t>::max();
  core::check(side.count() >= 0, "{} = {} keys: expected at least 0; say WindowSide::unbounded() for no bound", name,
              side.count());
  return std::min<std::int64_t>(side.count(), std::numeric_limits<std::int32_t>::max());
}

/// Column `block.column_begin + k` of a document: of the document's rows, those on its band.
HiddenRows column_of(const Block& block, std::int64_t k, std::int64_t left, std::int64_t right, std::int64_t rows) {
  const std::int64_t shift = (block.column_end - block.column_begin) - (block.row_end - block.row_begin);
  const auto row = [&](std::int64_t r) {
    return static_cast<std::int32_t>(std::clamp(block.row_begin + r, block.row_begin, block.row_end));
  };
  const HiddenRows raw{row(k - shift + left + 1), static_cast<std::int32_t>(rows), 0, row(k - shift - right)};
  return canonical(raw, static_cast<std::int32_t>(rows));
}

ColumnMask from_blocks(const std::vector<Block>& blocks, std::int64_t rows, std::int64_t columns,
                       const InsideDocuments& inside) {
  const std::int64_t left = reach_of("left", inside.left);
  const std::int64_t right = inside.causal ? 0 : reach_of("right", inside.right);
  if (inside.causal) reach_of("right", inside.right);  // checked even where causal overrides it
  const HiddenRows dead = mask::to_rows(mask::dead_column(), {1, 1, rows, columns});
  ColumnMask result({1, 1, rows, columns});
  std::int64_t j = 0;
  for (const Block& block : blocks) {
    for (; j < block.column_begin; ++j) result.set(0, 0, j, dead);  // padding behind the document before
    for (; j < block.column_end; ++j) result.set(0, 0, j, column_of(block, j - block.column_begin, left, right, rows));
  }
  for (; j < columns; ++j) result.set(0, 0, j, dead);
  return result;
}

}  // namespace

ColumnMask from_cu_seqlens(Offsets q, Offsets k, const InsideDocuments& inside) {
  check_offsets("cu_seqlens_q", q);
  check_offsets("cu_seqlens_k", k);
  check_same_count("cu_seqlens_q", q, "cu_seqlens_k", k);
  std::vector<Block> blocks;
  for (std::size_t d = 1; d < q.size(); ++d) blocks.push_back({q[d - 1], q[d], k[d - 1], k[d]});
  return from_blocks(blocks, q.back(), k.back(), inside);
}

ColumnMask from_packed_seq_params(const PackedSeqParams& p, const InsideDocuments& inside) {
  const Offsets q_at = p.cu_seqlens_q_padded.empty() ? p.cu_seqlens_q : p.cu_seqlens_q_padded;
  const Offsets k_at = p.cu_seqlens_kv_padded.empty() ? p.cu_seqlens_kv : p.cu_seqlens_kv_padded;
  check_offsets("cu_seqlens_q", p.cu_seqlens_q);
  check_offsets("cu_seqlens_kv", p.cu_seqlens_kv);
  check_offsets("cu_seqlens_q_padded", q_at);
  check_offsets("cu_seqlens_kv_padded", k_at);
  check_same_count("cu_seqlens_q", p.cu_seqlens_q, "cu_seqlens_kv", p.cu_seqlens_kv);
  check_same_count("cu_seqlens_q_padded", q_at, "cu_seqlens_q", p.cu_seqlens_q);
  check_same_count("cu_seqlens_kv_padded", k_at, "cu_seqlens_kv", p.cu_seqlens_kv);
  std::vector<Block> blocks;
  for (std::size_t d = 1; d < q_at.size(); ++d) {
    const std::int64_t rows = p.cu_seqlens_q[d] - p.cu_seqlens_q[d - 1];
    const std::int64_t columns = p.cu_seqlens_kv[d] - p.cu_seqlens_kv[d - 1];
    core::check(rows <= q_at[d] - q_at[d - 1] && columns <= k_at[d] - k_at[d - 1],
                "packed_seq_params: document {} has {} valid rows and {} valid columns in {} and {} padded ones: "
                "expected at most as many; are cu_seqlens and cu_seqlens_padded swapped?",
                d - 1, rows, columns, q_at[d] - q_at[d - 1], k_at[d] - k_at[d - 1]);
    blocks.push_back({q_at[d - 1], q_at[d - 1] + rows, k_at[d - 1], k_at[d - 1] + columns});
  }
  return from_blocks(blocks, q_at.back(), k_at.back(), inside);
}

}  // namespace flashmask::masks
