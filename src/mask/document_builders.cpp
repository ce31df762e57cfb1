// Builders whose columns follow from the packed documents.
#include <algorithm>

#include "core/check.hpp"
#include "flashmask/builders.hpp"
#include "mask/documents.hpp"
#include "mask/token_columns.hpp"

namespace flashmask::masks {
namespace {

using mask::causal_column;
using mask::end_token;
using mask::first_token;
using mask::PlacedDocument;
using mask::TokenColumn;

void put(ColumnMask& result, std::int64_t batch, std::int64_t column, const TokenColumn& token_column) {
  const HiddenRows rows = mask::to_rows(token_column, result.shape());
  for (std::int64_t h = 0; h < result.shape().heads; ++h) result.set(batch, h, column, rows);
}

/// Every token column of every document is column_of(document, j); what is left of the columns is dead.
template <typename ColumnOf>
ColumnMask fill_documents(std::string_view builder, const MaskShape& shape, const Packing& packing,
                          ColumnOf&& column_of) {
  mask::check_rows_are_tokens(builder, shape);
  ColumnMask result(shape);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    std::int64_t j = 0;
    for (const PlacedDocument& d : mask::place_documents(builder, packing, shape, b)) {
      for (; j < d.end; ++j) put(result, b, j, column_of(d, j));
    }
    for (; j < shape.columns; ++j) put(result, b, j, mask::dead_column());
  }
  return result;
}

}  // namespace

ColumnMask causal_document(const MaskShape& shape, const Packing& packing) {
  return fill_documents("causal_document", shape, packing,
                        [](const PlacedDocument& d, std::int64_t j) { return causal_column(j, d.end, end_token); });
}

ColumnMask document(const MaskShape& shape, const Packing& packing) {
  return fill_documents("document", shape, packing, [](const PlacedDocument& d, std::int64_t) {
    return TokenColumn{d.end, end_token, first_token, d.begin};
  });
}

ColumnMask share_question(const MaskShape& shape, const Packing& packing) {
  return fill_documents("share_question", shape, packing, [](const PlacedDocument& d, std::int64_t j) {
    if (j < d.prefix_end) return causal_column(j, d.end, end_token);
    return causal_column(j, *std::ranges::upper_bound(d.answer_ends, j), end_token);
  });
}

ColumnMask prefix_lm_document(const MaskShape& shape, const Packing& packing) {
  return fill_documents("prefix_lm_document", shape, packing, [](const PlacedDocument& d, std::int64_t j) {
    return TokenColumn{d.end, end_token, first_token, j < d.prefix_end ? d.begin : j};
  });
}

ColumnMask causal_blockwise(const MaskShape& shape, const Packing& packing) {
  mask::check_rows_are_tokens("causal_blockwise", shape);
  ColumnMask result(shape);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const auto documents = mask::place_documents("causal_blockwise", packing, shape, b);
    const std::int64_t used = documents.empty() ? 0 : documents.back().end;
    core::check(
        used == shape.columns,
        "causal_blockwise: batch {}: documents of {} tokens for columns = {}: padding would need a third hidden "
        "run, so the documents must fill the columns",
        b, used, shape.columns);
    for (const PlacedDocument& d : documents) {
      const std::int64_t last_begin = documents.back().begin;  // the last document sees all before it
      for (std::int64_t j = d.begin; j < d.end; ++j) put(result, b, j, causal_column(j, d.end, last_begin));
    }
  }
  return result;
}

}  // namespace flashmask::masks
