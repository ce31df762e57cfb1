// From the runs of a tile map to the pieces that kernels work on: at most kStrip rows or columns, one class each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "cpu/buffer.hpp"
#include "cpu/kernels.hpp"
#include "cpu/tiled.hpp"
#include "flashmask/tile.hpp"

namespace flashmask::cpu {

/// Calls f(begin, end, tile class) for every visible piece of `runs` inside [begin, end), ascending. Runs count blocks
/// of `block` positions; pieces are cut at multiples of kStrip.
template <typename F>
void for_each_piece(std::span<const TileRun> runs, std::int64_t block, std::int64_t begin, std::int64_t end,
                    const F& f) {
  auto run = std::partition_point(runs.begin(), runs.end(), [&](const TileRun& r) {
    return (static_cast<std::int64_t>(r.first) + r.count) * block <= begin;
  });
  for (; run != runs.end() && run->first * block < end; ++run) {
    const std::int64_t last = std::min((static_cast<std::int64_t>(run->first) + run->count) * block, end);
    for (std::int64_t at = std::max(run->first * block, begin); at < last;) {
      const std::int64_t stop = std::min(last, (at / kStrip + 1) * kStrip);
      f(at, stop, run->tile_class);
      at = stop;
    }
  }
}

/// Class of rows x columns of one (batch, mask head) by the minmax rule: what a tile taller or wider than kStrip says
/// about its pieces is coarse, and asking again costs a hundredth of the piece.
TileClass piece_class(const ColumnMask& mask, std::int64_t batch, std::int64_t head, const ColumnRange& rows,
                      const ColumnRange& columns);

/// Whether a map's tiles are larger than pieces.
inline bool is_coarse(const TileMap& map) {
  return map.tile_shape().block_m > kStrip || map.tile_shape().block_n > kStrip;
}

/// The visiting orders of a call, filled in where the caller gave none, and cut to the columns that exist.
class Orders {
 public:
  Orders(const Hooks& hooks, const AttentionShape& shape);
  [[nodiscard]] std::span<const ColumnRange> ranges(std::int64_t batch) const {
    return ranges_[static_cast<std::size_t>(batch)];
  }
  [[nodiscard]] std::int64_t column_count(std::int64_t batch) const { return counts_[static_cast<std::size_t>(batch)]; }

 private:
  std::vector<std::vector<ColumnRange>> ranges_;
  std::vector<std::int64_t> counts_;
};

/// Rows of one head of a tensor from a position on.
Strided strided(const TensorView& view, std::int64_t batch, std::int64_t position, std::int64_t head);

/// A multiply factor over the positions [begin, begin + count) of one head: the tensor itself where it is float32 with
/// unit stride, else a float32 copy in `copy` ([kStrip][head_dim]).
struct Positions {
  const float* data;
  std::int64_t stride;
  /// A(m = position, k = dim).
  [[nodiscard]] Factor by_position() const { return {data, stride, 1}; }
  /// A(m = dim, k = position).
  [[nodiscard]] Factor by_dim() const { return {data, 1, stride}; }
};
Positions positions(const Kernels& kernels, const TensorView& view, std::int64_t batch, std::int64_t head,
                    std::int64_t begin, std::int64_t count, std::int64_t head_dim, float* copy);

/// Softmax scale of a call.
float scale_of(const std::optional<float>& scale, const AttentionShape& shape);

constexpr float kLog2E = 1.44269504F;
constexpr double kLn2 = 0.69314718055994530942;

/// Lanes rounded up to whole vectors.
inline std::int64_t padded(std::int64_t count, const Kernels& kernels) {
  return (count + kernels.lanes - 1) / kernels.lanes * kernels.lanes;
}

/// The given map, or one built for this backend's own tiles.
class MapOf {
 public:
  explicit MapOf(const MaskArgument& mask);
  [[nodiscard]] const TileMap& operator*() const { return given_ != nullptr ? *given_ : own_; }
  const TileMap* operator->() const { return &**this; }

 private:
  const TileMap* given_;
  TileMap own_;
};

}  // namespace flashmask::cpu
