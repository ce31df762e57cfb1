// Between tensors of all tokens and the shards that ranks hold (docs/overlap.md).
//
// A shard carries the digest of the plan that cut it; putting shards together with another plan is refused. Tokens,
// labels, position ids and activations all go through the same two functions, so they cannot part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "flashmask/balance.hpp"

namespace flashmask {

/// A rank's rows of a tensor [batch][tokens][row_bytes]: [batch][local rows][row_bytes], chunks ascending.
struct Shard {
  std::uint64_t plan_digest = 0;
  std::int64_t rank = 0;
  std::int64_t batch = 1;
  std::size_t row_bytes = 0;
  std::vector<std::byte> data;
};

/// Global token row of every local row of a rank, ascending.
std::vector<std::int64_t> global_rows(const Plan& plan, std::int64_t rank);

/// Cuts rank's shard from a contiguous tensor [batch][plan.columns()][row_bytes]. Throws invalid_argument when the
/// tensor's size does not fit.
Shard dispatch(const Plan& plan, std::int64_t rank, std::span<const std::byte> tensor, std::int64_t batch,
               std::size_t row_bytes);
/// The tensor again from the shards of all ranks, in any order. Throws invalid_argument for a shard of another plan, a
/// missing or doubled rank, or shards of different shape.
std::vector<std::byte> undispatch(const Plan& plan, std::span<const Shard> shards);
/// Throws invalid_argument, naming both digests, unless the shard was cut by this plan.
void check_shard(const Plan& plan, const Shard& shard);

/// The same for tensors of one type with `row` elements per token.
template <typename T>
std::vector<T> dispatch(const Plan& plan, std::int64_t rank, std::span<const T> tensor, std::int64_t batch = 1,
                        std::size_t row = 1) {
  static_assert(std::is_trivially_copyable_v<T>);
  const Shard shard = dispatch(plan, rank, std::as_bytes(tensor), batch, row * sizeof(T));
  std::vector<T> out(shard.data.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), shard.data.data(), shard.data.size());
  return out;
}

/// What a position id counts. Rotary embeddings want one of these, and mixing them up is silent: so it has a name.
enum class PositionKind : std::uint8_t {
  global_row,   ///< the token's place in the packed sequence
  in_document,  ///< its place in its document
  tree_depth,   ///< its place on the path from the root of its prefix tree
};
std::string_view to_string(PositionKind kind);

/// Position ids of a rank's rows, [batch][local rows].
struct Positions {
  PositionKind kind = PositionKind::global_row;
  std::vector<std::int64_t> values;
};

/// Of every local row, once for each batch row.
Positions global_row_positions(const Plan& plan, std::int64_t rank, std::int64_t batch = 1);
/// `documents[b]`: lengths of batch row b's documents; tokens behind the last one (padding) count on from 0.
Positions in_document_positions(const Plan& plan, std::int64_t rank,
                                std::span<const std::vector<std::int64_t>> documents);
/// `depths[b]`: the depth of every token of batch row b, as prefix_tree_positions() gives it; padding counts from 0.
Positions tree_depth_positions(const Plan& plan, std::int64_t rank, std::span<const std::vector<std::int64_t>> depths);

/// result[i] = values[i + shift] where that token lies in the document of token i, `ignore` where it does not: labels
/// for next-token (shift 1) and multi-token prediction. One batch row of all tokens; dispatch the result. Documents
/// given by length; what is left behind them is padding and gets `ignore`. shift may be negative or larger than any
/// document.
template <typename T>
std::vector<T> roll(std::span<const T> values, std::span<const std::int64_t> documents, std::int64_t shift, T ignore) {
  const auto size = static_cast<std::int64_t>(values.size());
  std::vector<T> out(values.size(), ignore);
  std::int64_t begin = 0;
  for (const std::int64_t length : documents) {
    const std::int64_t end = length < size - begin ? begin + length : size;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t from =
          shift >= 0 ? (shift < end - i ? i + shift : -1) : (-shift <= i - begin ? i + shift : -1);
      if (from >= 0) out[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>(from)];
    }
    begin = end;
  }
  return out;
}

}  // namespace flashmask
