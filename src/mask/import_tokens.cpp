// Imports of one number per token: document ids, positions, 0/1 padding masks.
#include <algorithm>
#include <map>

#include "core/check.hpp"
#include "flashmask/imports.hpp"
#include "mask/column_runs.hpp"
#include "mask/token_columns.hpp"

namespace flashmask::masks {
namespace {

using mask::RowRun;

/// [batch][tokens] values as a square shape.
MaskShape square_shape(std::string_view name, std::size_t values, std::int64_t batch) {
  core::check(batch >= 1, "{}: batch = {}: expected at least 1", name, batch);
  const std::int64_t tokens = static_cast<std::int64_t>(values) / batch;
  core::check(tokens * batch == static_cast<std::int64_t>(values),
              "{}: {} values for batch = {}: expected the same number of tokens in every batch row", name, values,
              batch);
  return {batch, 1, tokens, tokens};
}

/// One run of tokens of one document id, or of padding.
struct TokenRun {
  std::int64_t begin = 0, end = 0;
  std::int64_t id = 0;
};

std::vector<TokenRun> runs_of(std::span<const std::int64_t> ids) {
  std::vector<TokenRun> runs;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const auto token = static_cast<std::int64_t>(t);
    if (runs.empty() || ids[t] != ids[t - 1]) runs.push_back({token, token, ids[t]});
    runs.back().end = token + 1;
  }
  return runs;
}

/// Rows of one batch row that see column j, for a document made of `parts`.
HiddenRows column_of_parts(const mask::ColumnPlace& place, const std::vector<RowRun>& parts, bool causal,
                           std::int64_t rows) {
  if (!causal) return mask::column_of_visible(place, parts, rows);
  std::vector<RowRun> behind = parts;
  for (RowRun& part : behind) part.begin = std::max(part.begin, place.column);
  return mask::column_of_visible(place, behind, rows);
}

void fill_batch_row(ColumnMask& result, std::int64_t batch, std::span<const std::int64_t> ids, IdZero zero,
                    const DocumentIdOptions& options) {
  const std::int64_t tokens = result.shape().rows;
  const std::vector<TokenRun> runs = runs_of(ids);
  std::map<std::int64_t, std::vector<RowRun>> parts;  // of every id
  for (const TokenRun& run : runs) {
    auto& of_id = parts[run.id];
    const bool padding = run.id == 0 && zero == IdZero::padding;
    core::check(padding || of_id.empty() || options.returning != ReturningId::refused,
                "document_ids: batch {}: id {} ends at token {} and comes back at token {}: say whether a returning id "
                "is a new document or the same one",
                batch, run.id, of_id.empty() ? 0 : of_id.back().end, run.begin);
    of_id.push_back({run.begin, run.end});
  }
  for (const TokenRun& run : runs) {
    const bool padding = run.id == 0 && zero == IdZero::padding;
    const std::vector<RowRun> own{{run.begin, run.end}};
    const std::vector<RowRun> none;
    const auto& seen_by = padding ? none : options.returning == ReturningId::same_document ? parts[run.id] : own;
    for (std::int64_t j = run.begin; j < run.end; ++j) {
      result.set(batch, 0, j, column_of_parts({"document_ids", batch, 0, j}, seen_by, options.causal, tokens));
    }
  }
}

}  // namespace

ColumnMask from_document_ids(std::span<const std::int64_t> ids, std::int64_t batch, IdZero zero,
                             const DocumentIdOptions& options) {
  const MaskShape shape = square_shape("document_ids", ids.size(), batch);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    core::check(ids[t] >= 0, "document_ids: batch {}, token {}: id = {}: expected at least 0; mark padding by 0",
                static_cast<std::int64_t>(t) / shape.columns, static_cast<std::int64_t>(t) % shape.columns, ids[t]);
  }
  ColumnMask result(shape);
  for (std::int64_t b = 0; b < batch; ++b) {
    fill_batch_row(result, b,
                   ids.subspan(static_cast<std::size_t>(b * shape.columns), static_cast<std::size_t>(shape.columns)),
                   zero, options);
  }
  return result;
}

ColumnMask from_position_ids(std::span<const std::int64_t> positions, std::int64_t batch, PositionRule rule,
                             bool causal) {
  const MaskShape shape = square_shape("position_ids", positions.size(), batch);
  std::vector<std::int64_t> ids(positions.size());
  for (std::size_t t = 0; t < positions.size(); ++t) {
    const auto token = static_cast<std::int64_t>(t) % shape.columns;
    core::check(positions[t] >= 0, "position_ids: batch {}, token {}: position = {}: expected at least 0",
                static_cast<std::int64_t>(t) / shape.columns, token, positions[t]);
    if (token == 0) continue;  // the first token starts document 0
    const bool starts = rule == PositionRule::starts_at_zero ? positions[t] == 0 : positions[t] != positions[t - 1] + 1;
    ids[t] = ids[t - 1] + (starts ? 1 : 0);
  }
  return from_document_ids(ids, batch, IdZero::document, {.causal = causal});
}

ColumnMask from_attention_mask(std::span<const std::int64_t> values, std::int64_t batch, bool causal,
                               std::optional<std::int64_t> rows) {
  MaskShape shape = square_shape("attention_mask", values.size(), batch);
  shape.rows = rows.value_or(shape.columns);
  mask::check_rows_are_tokens("attention_mask", shape);
  for (std::size_t t = 0; t < values.size(); ++t) {
    core::check(values[t] == 0 || values[t] == 1,
                "attention_mask: batch {}, token {}: value {}: expected 0 or 1; numbered documents are document_ids",
                static_cast<std::int64_t>(t) / shape.columns, static_cast<std::int64_t>(t) % shape.columns, values[t]);
  }
  return mask::fill(shape, [&](std::int64_t b, std::int64_t j) {
    if (values[static_cast<std::size_t>(b * shape.columns + j)] == 0) return mask::dead_column();
    return causal ? mask::causal_column(j) : mask::TokenColumn{};
  });
}

}  // namespace flashmask::masks
