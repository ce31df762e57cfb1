// The tile map of the kernels built on the host, from the same functions as the device builder: the oracle of the
// device builder, and a way to test what kernels read without a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "flashmask/mask.hpp"
#include "sm90/tile_map/rule.hpp"

namespace flashmask::sm90 {

/// `shape` is mask rows x columns of a row tile's blocks. Throws invalid_argument unless block_m is a multiple of 64 up
/// to 512 and block_n a multiple of 8 up to 256 (packed: of 64 / packed_heads up to 512 / packed_heads, and of 16), the
/// form is one that MapForm allows, and the extents and list counts fit the 32-bit fields of TileMapView.
void check_map_shape(const MaskShape& mask, TileShape shape, const MapForm& form = {});

inline constexpr std::int64_t default_bitmap_bytes = std::int64_t{96} << 20;
/// Capacity that suits common masks: up to 32 runs a list, bitmaps up to `bitmap_bytes`.
MapCapacity default_capacity(const MaskShape& mask, TileShape shape, std::int64_t bitmap_bytes = default_bitmap_bytes,
                             const MapForm& form = {});

/// The capacity that a map of these tiles has use for: no bitmaps for blocks wider than a bitmap.
MapCapacity usable_capacity(MapCapacity capacity, TileShape shape);

/// Owns the arrays behind a TileMapView; value type.
class HostTileMap {
 public:
  /// `mask` in host memory, any int32 values (canonical form is taken here). Throws invalid_argument as
  /// check_map_shape.
  static HostTileMap build(const MaskView& mask, TileShape shape, const MapCapacity& capacity,
                           const TileCosts& costs = {}, const MapForm& form = {}, std::int32_t section = 0);

  /// Pointers into this object; valid as long as it is neither changed nor destroyed.
  [[nodiscard]] TileMapView view() const;
  [[nodiscard]] const MapCounts& counts() const { return counts_; }

 private:
  struct List;
  [[nodiscard]] List scan_list(std::int64_t matrix, std::int32_t row_tile, std::int32_t column_block) const;
  void prepare(const MaskView& mask);
  void build_rows();
  void build_columns();
  void fill_bitmaps(std::int64_t matrix, std::int32_t row_tile, const Run& run);

  TileGrid grid_{};
  MaskShape shape_;
  MapCapacity capacity_;
  TileCosts costs_;
  OrderRule order_rule_;
  MapCounts counts_;
  std::vector<BlockBounds> bounds_;  ///< [matrix][padded unit]
  std::vector<std::int32_t> lts_, lte_, uts_, ute_;
  std::vector<Run> row_runs_, column_runs_;
  std::vector<std::int32_t> row_begin_, row_count_, column_begin_, column_count_, row_order_, column_order_;
  std::vector<std::uint64_t> bitmaps_;
};

}  // namespace flashmask::sm90
