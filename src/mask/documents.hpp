// Packed documents laid out on the token axis, with every default resolved and every length checked.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "flashmask/builders.hpp"

namespace flashmask::mask {

/// A non-empty document at its place. `answer_ends` are the token ends of its answers, the last equal to `end`.
struct PlacedDocument {
  std::int64_t begin = 0, end = 0;
  std::int64_t prefix_end = 0;
  std::vector<std::int64_t> answer_ends;

  [[nodiscard]] std::int64_t length() const { return end - begin; }
  [[nodiscard]] std::int64_t prefix() const { return prefix_end - begin; }
};

/// Checks and places the documents of batch row `batch`. Errors start with `builder`.
std::vector<PlacedDocument> place_documents(std::string_view builder, const masks::Packing& packing,
                                            const MaskShape& shape, std::int64_t batch);

}  // namespace flashmask::mask
