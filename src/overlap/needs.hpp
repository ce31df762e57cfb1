// Which chunks' keys a rank's rows can see, per batch row. Everything that moves, and every slot of a buffer, follows
// from this list; sender and receiver compute it from the same mask and plan, so nothing is negotiated.
#pragma once

#include <cstdint>
#include <vector>

#include "flashmask/balance.hpp"
#include "flashmask/needs.hpp"

namespace flashmask::overlap {

/// Who owns what, in the small integers that schedules use.
struct Owners {
  std::int32_t ranks = 1;
  std::int32_t nodes = 1;
  std::int64_t columns = 0;
  std::int64_t chunk = 1;
  std::vector<std::int32_t> rank_of_chunk;
  std::vector<std::vector<std::int32_t>> chunks_of;  ///< by rank, ascending

  static Owners of(const Plan& plan);
  [[nodiscard]] std::int32_t chunks() const { return static_cast<std::int32_t>(rank_of_chunk.size()); }
  [[nodiscard]] std::int32_t node_of(std::int32_t rank) const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(rank) * nodes / ranks);
  }
  /// Rows (and columns) of a chunk; the last one may be shorter.
  [[nodiscard]] std::int64_t rows_of(std::int32_t chunk_number) const;
  [[nodiscard]] std::int64_t local_rows(std::int32_t rank) const;
};

enum class Pruning : std::uint8_t {
  on,   ///< a rank needs the chunks that some row of it can see
  off,  ///< every rank needs every chunk (the ablation's "without chunk-skip pruning")
};

class RankNeeds {
 public:
  RankNeeds() = default;
  /// Throws invalid_argument unless the mask has as many rows and columns as the plan deals tokens. What is not pruned
  /// is never looked at.
  static RankNeeds build(const ColumnMask& mask, const Owners& owners, Pruning pruning);

  [[nodiscard]] std::int32_t ranks() const { return static_cast<std::int32_t>(lists_.size()); }
  [[nodiscard]] std::int32_t batch() const { return batch_; }
  /// Ascending; own chunks are in it when own rows see them.
  [[nodiscard]] const std::vector<std::int32_t>& chunks_of(std::int32_t rank, std::int32_t b) const {
    return lists_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(b)];
  }
  [[nodiscard]] const std::vector<std::vector<std::int32_t>>& lists_of(std::int32_t rank) const {
    return lists_[static_cast<std::size_t>(rank)];
  }
  /// Place of the chunk in the rank's list, -1 when the rank does not need it. O(log).
  [[nodiscard]] std::int32_t slot(std::int32_t rank, std::int32_t b, std::int32_t chunk) const;
  [[nodiscard]] bool needs(std::int32_t rank, std::int32_t b, std::int32_t chunk) const {
    return slot(rank, b, chunk) >= 0;
  }
  /// Ranks that need the chunk, ascending.
  [[nodiscard]] const std::vector<std::int32_t>& ranks_needing(std::int32_t b, std::int32_t chunk) const {
    return needers_[static_cast<std::size_t>(b)][static_cast<std::size_t>(chunk)];
  }

 private:
  std::int32_t batch_ = 0;
  std::vector<std::vector<std::vector<std::int32_t>>> lists_;    // [rank][batch]
  std::vector<std::vector<std::vector<std::int32_t>>> needers_;  // [batch][chunk]
};

}  // namespace flashmask::overlap
