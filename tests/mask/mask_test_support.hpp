// Shared by the tests of the mask room: masks from plain predicates, cell by cell, and readable failures.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "flashmask/builders.hpp"
#include "flashmask/error.hpp"
#include "flashmask/imports.hpp"

namespace flashmask::masks {

/// Compares one (batch, head) with a predicate of (row, column), cell by cell.
template <typename Visible>
::testing::AssertionResult sees(const ColumnMask& mask, Visible&& visible, std::int64_t batch = 0,
                                std::int64_t head = 0) {
  const auto dense = mask.dense(batch, head);
  const MaskShape& s = mask.shape();
  for (std::int64_t i = 0; i < s.rows; ++i) {
    for (std::int64_t j = 0; j < s.columns; ++j) {
      const bool expected = visible(i, j);
      const bool found = dense[static_cast<std::size_t>(i * s.columns + j)] != 0;
      if (expected == found && found == mask.visible(batch, head, i, j)) continue;
      return ::testing::AssertionFailure() << "row " << i << ", column " << j << ": expected "
                                           << (expected ? "visible" : "hidden") << ", dense says " << found;
    }
  }
  return ::testing::AssertionSuccess();
}

inline std::vector<std::int32_t> to_vector(std::span<const std::int32_t> values) {
  return {values.begin(), values.end()};
}

/// Visible columns per row of batch row 0, mask head 0.
inline std::vector<std::int64_t> row_counts(const ColumnMask& mask) {
  return mask.row_counts(0, 0);
}

/// The text of the invalid_argument error `call` throws; a failure if it throws none.
template <typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

}  // namespace flashmask::masks
