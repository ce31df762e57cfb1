// Where things lie: key and gradient slots of every rank, inbound slots of the reduce, and progress words. Every rank
// computes the layout of every other, so a put needs no address from its receiver.
#pragma once

#include <cstdint>
#include <vector>

#include "overlap/schedule.hpp"

namespace flashmask::overlap {

/// Token rows of one rank's key buffer: for every batch row the needed chunks, ascending and compact, padded to the
/// longest batch row; then the own chunks that others need and the rank itself does not.
struct RankSlots {
  std::int64_t columns = 0;                       ///< of the longest batch row
  std::vector<std::int64_t> column_counts;        ///< by batch row
  std::vector<std::vector<std::int64_t>> row_of;  ///< [batch][chunk]: first token row in the buffer, -1: no slot
  std::vector<std::pair<std::int32_t, std::int32_t>> outbox;  ///< (batch, chunk) behind the needed ones
  std::int64_t rows = 0;                                      ///< of the whole buffer
};

/// Inbound slots of one rank: token rows, one slot per incoming transfer of the reduce.
struct InboundSlots {
  std::vector<std::int64_t> row_of;  ///< by inbound number
  std::int64_t rows = 0;
};

struct Layout {
  std::vector<RankSlots> slots;       ///< by rank
  std::vector<InboundSlots> inbound;  ///< by rank
  std::int64_t most_inbound = 0;      ///< inbound slots of the rank that has most

  static Layout build(const Owners& owners, const RankNeeds& needs, const ReduceSchedule& reduce);
};

/// One block of words holds them all.
struct WordLayout {
  std::int64_t units = 0;  ///< batch rows x chunks
  std::int64_t chunks = 0;
  std::int64_t ranks = 0;
  std::int64_t inbound = 0;

  [[nodiscard]] std::int64_t unit(std::int32_t b, std::int32_t c) const { return b * chunks + c; }
  /// Keys and values of the chunk can be read in this rank's buffer.
  [[nodiscard]] std::int64_t gathered(std::int32_t b, std::int32_t c) const { return unit(b, c); }
  /// This rank's own dK and dV of the chunk are complete.
  [[nodiscard]] std::int64_t ready(std::int32_t b, std::int32_t c) const { return units + unit(b, c); }
  /// The sum of the chunk over this node is complete at this rank.
  [[nodiscard]] std::int64_t combined(std::int32_t b, std::int32_t c) const { return 2 * units + unit(b, c); }
  /// An inbound slot of the reduce is filled.
  [[nodiscard]] std::int64_t arrived(std::int32_t slot) const { return 3 * units + slot; }
  /// That rank has read everything of the call: its buffers may be written again.
  [[nodiscard]] std::int64_t released(std::int32_t rank) const { return 3 * units + inbound + rank; }
  /// This rank's attention of the call is complete.
  [[nodiscard]] std::int64_t attended() const { return 3 * units + inbound + ranks; }
  /// This rank's sums of the call are complete.
  [[nodiscard]] std::int64_t summed() const { return attended() + 1; }
  [[nodiscard]] std::int64_t count() const { return summed() + 1; }
};

}  // namespace flashmask::overlap
