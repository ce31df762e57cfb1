// How long a rank's attention takes, tile by tile, with chunks that become readable over time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "flashmask/localise.hpp"
#include "flashmask/tile.hpp"
#include "overlap/simulate.hpp"

namespace flashmask::overlap {

/// Tiles of one rank by class, for every (batch row, mask head, row block, place in the key list) of its local mask.
class RankWork {
 public:
  RankWork(const ColumnMask& mask, const Owners& owners, const RankNeeds& needs, std::int32_t rank,
           const SimulatedShape& shape);

  /// When each needed chunk can be read: by batch row and place in the rank's list.
  using Arrivals = std::vector<std::vector<double>>;
  /// Every chunk at `time`.
  [[nodiscard]] Arrivals all_at(double time) const;

  /// End of the forward on `sms` SMs: row blocks, heaviest first, each walking the chunks in the order of `visits`.
  [[nodiscard]] double forward(const Arrivals& arrivals, const std::vector<std::vector<std::int32_t>>& visits,
                               const TileSeconds& seconds, std::int32_t sms, double start) const;
  /// End of the backward: column blocks in the order of `visits`; `ready` receives when each chunk's dK and dV are
  /// done.
  [[nodiscard]] double backward(const Arrivals& arrivals, const std::vector<std::vector<std::int32_t>>& visits,
                                const TileSeconds& seconds, std::int32_t sms, double start, Arrivals& ready) const;

 private:
  struct Tiles {
    float partial = 0, unmasked = 0;
    [[nodiscard]] double time(const TileSeconds& s) const { return partial * s.partial + unmasked * s.unmasked; }
  };
  [[nodiscard]] const Tiles* row(std::int64_t b, std::int64_t head, std::int64_t block) const {
    return &tiles_[static_cast<std::size_t>(((b * heads_ + head) * row_blocks_ + block) * slots_)];
  }

  const SimulatedShape shape_;
  std::int64_t batch_ = 0, heads_ = 0, row_blocks_ = 0, slots_ = 0;
  std::vector<std::int64_t> counts_;                       ///< chunks by batch row
  std::vector<std::vector<std::int32_t>> place_of_chunk_;  ///< [batch][chunk]: place in the list, -1 if not needed
  std::vector<Tiles> tiles_;
  std::vector<RowBlock> order_;
};

}  // namespace flashmask::overlap
