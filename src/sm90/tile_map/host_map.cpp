#include "sm90/tile_map/host_map.hpp"

#include <algorithm>
#include <numeric>

#include "core/check.hpp"

namespace flashmask::sm90 {
namespace {

constexpr std::int64_t int32_most = 2147483647;

/// Flat list indices by descending key, ties in ascending order: what a stable radix sort gives.
std::vector<std::int32_t> descending(const std::vector<std::uint32_t>& keys) {
  std::vector<std::int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return keys[a] > keys[b]; });
  return order;
}

}  // namespace

void check_map_shape(const MaskShape& mask, TileShape shape, const MapForm& form) {
  const std::int32_t packed = form.packed_heads;
  core::check(packed >= 1 && packed <= strip_rows && (packed & (packed - 1)) == 0,
              "packed_heads must be a power of two from 1 to {}, got {}", strip_rows, packed);
  const std::int32_t rows = subtile_rows / packed, columns = packed > 1 ? unit_columns : 8;
  core::check(shape.block_m >= rows && shape.block_m % rows == 0 && shape.block_m <= rows * max_subtiles,
              "block_m must be a multiple of {} from {} to {} with {} query heads a row tile, got {}", rows, rows,
              rows * max_subtiles, packed, shape.block_m);
  core::check(shape.block_n >= columns && shape.block_n % columns == 0 && shape.block_n <= max_block_n,
              "block_n must be a multiple of {} from {} to {} with {} query heads a row tile, got {}", columns, columns,
              max_block_n, packed, shape.block_n);
  core::check(mask.batch >= 0 && mask.heads >= 0 && mask.rows >= 0 && mask.columns >= 0,
              "mask extents must be >= 0, got batch {}, heads {}, rows {}, columns {}", mask.batch, mask.heads,
              mask.rows, mask.columns);
  // Tile ends must be representable, hence the tile's own extent below the limit.
  core::check(mask.rows <= int32_most - shape.block_m && mask.columns <= int32_most - 3 * shape.block_n,
              "rows and columns must leave room for three tiles below 2^31, got rows {}, columns {}", mask.rows,
              mask.columns);
  const std::int64_t lists = std::max<std::int64_t>(
      {(mask.rows + shape.block_m - 1) / shape.block_m, (mask.columns + shape.block_n - 1) / shape.block_n, 1});
  core::check(
      mask.batch <= int32_most && mask.heads <= int32_most && mask.batch * mask.heads <= (int32_most / 2 - 1) / lists,
      "a tile map holds fewer than 2^30 row tiles and column blocks, got batch {} x mask heads {} x {}; split "
      "the batch",
      mask.batch, mask.heads, lists);
}

MapCapacity default_capacity(const MaskShape& mask, TileShape shape, std::int64_t bitmap_bytes, const MapForm& form) {
  check_map_shape(mask, shape, form);
  const TileGrid grid =
      tile_grid(static_cast<std::int32_t>(mask.rows), static_cast<std::int32_t>(mask.columns), shape, form);
  const std::int64_t matrices = mask.batch * mask.heads;
  constexpr std::int64_t runs_per_list = 32;
  constexpr std::int64_t most_runs = std::int64_t{1} << 26;  // 1 GiB of runs: beyond that lists fall back
  const auto capped = [](std::int64_t value, std::int64_t most) {
    return static_cast<std::int32_t>(std::min(value, most));
  };
  const std::int64_t row_lists = matrices * grid.row_tiles;
  const std::int64_t column_lists = matrices * grid.column_blocks;
  const std::int64_t bitmap_size = std::int64_t{subtile_threads} * grid.subtiles() * 8;
  return usable_capacity({capped(row_lists * std::min<std::int64_t>(runs_per_list, grid.column_blocks), most_runs),
                          capped(column_lists * std::min<std::int64_t>(runs_per_list, grid.row_tiles), most_runs),
                          capped(row_lists * grid.column_blocks, std::min(bitmap_bytes / bitmap_size, int32_most))},
                         shape);
}

MapCapacity usable_capacity(MapCapacity capacity, TileShape shape) {
  if (shape.block_n > max_bitmap_columns) capacity.bitmaps = 0;
  return capacity;
}

/// One row list (fixed row tile) or column list (fixed column block) before it is placed.
struct HostTileMap::List {
  std::vector<Run> runs;  // bitmap: offset inside the list, or -1
  std::int64_t cost = 0;
  std::int64_t visited = 0;
  std::int64_t partial_blocks = 0;
  std::int64_t partial_subtiles = 0;
  std::int64_t unmasked_subtiles = 0;

  /// The one run that stands for a list that does not fit: everything from its first to its last visible block.
  [[nodiscard]] Run span(std::uint32_t classes, std::int32_t step) const {
    const std::int32_t first = runs.front().first;
    return {first, (runs.back().first - first + step - 1) / step + runs.back().count, classes, -1};
  }
};

HostTileMap::List HostTileMap::scan_list(std::int64_t matrix, std::int32_t row_tile, std::int32_t column_block) const {
  const bool is_row = column_block < 0;
  const auto bounds = [&](std::int32_t u) { return bounds_[matrix * grid_.padded_units() + u]; };
  const auto column = [&](std::int32_t c) {
    const std::int64_t at = matrix * grid_.padded_columns + c;
    return HiddenRows{lts_[at], lte_[at], uts_[at], ute_[at]};
  };
  const auto word_at = [&](std::int32_t i) {
    if (!is_row) return block_word(grid_, i, column_block * grid_.column_units, bounds, column);
    if (grid_.column_units > 1 && !sees_unit(grid_, row_tile, i, bounds, column)) return 0U;
    return block_word(grid_, row_tile, i, bounds, column);
  };
  const std::int32_t length = is_row ? grid_.units() : grid_.row_tiles;
  const std::int32_t step = is_row ? grid_.column_units : 1;
  List list;
  std::uint32_t previous = 0;
  for (std::int32_t i = 0; i < length;) {
    const std::uint32_t word = word_at(i);
    if (word != 0) {
      if (word == previous) {
        ++list.runs.back().count;
      } else {
        const bool wants_bitmaps = is_row && has_partial(word);
        list.runs.push_back({i, 1, word, wants_bitmaps ? static_cast<std::int32_t>(list.partial_blocks) : -1});
      }
      list.cost += block_cost(word, costs_);
      ++list.visited;
      list.partial_blocks += has_partial(word);
      list.partial_subtiles += partial_subtiles(word);
      list.unmasked_subtiles += unmasked_subtiles(word);
    }
    previous = word;
    i += word != 0 ? step : 1;
  }
  return list;
}

void HostTileMap::prepare(const MaskView& mask) {
  const std::int64_t matrices = shape_.batch * shape_.heads;
  const auto size = static_cast<std::size_t>(matrices * grid_.padded_columns);
  lts_.assign(size, grid_.rows), lte_.assign(size, 0), uts_.assign(size, 0), ute_.assign(size, grid_.rows);
  bounds_.assign(static_cast<std::size_t>(matrices * grid_.padded_units()), BlockBounds::none());
  for (std::int64_t m = 0; m < matrices; ++m) {
    for (std::int32_t j = 0; j < grid_.columns; ++j) {
      const HiddenRows c = canonical(mask.at(m * grid_.columns + j), grid_.rows);
      const std::int64_t to = m * grid_.padded_columns + j;
      lts_[to] = c.lts, lte_[to] = c.lte, uts_[to] = c.uts, ute_[to] = c.ute;
      bounds_[m * grid_.padded_units() + j / grid_.unit()].include(c);
    }
  }
}

void HostTileMap::fill_bitmaps(std::int64_t matrix, std::int32_t row_tile, const Run& run) {
  const std::int32_t threads = subtile_threads * grid_.subtiles();
  for (std::int32_t i = 0; i < run.count; ++i) {
    const std::int32_t start = run.first + i * grid_.column_units;
    const std::int64_t base = matrix * grid_.padded_columns + std::int64_t{start} * grid_.unit();
    for (std::int32_t t = 0; t < threads; ++t) {
      bitmaps_[std::int64_t{run.bitmap + i} * threads + t] = bitmap_word(grid_, row_tile, t, [&](std::int32_t c) {
        return HiddenRows{lts_[base + c], lte_[base + c], uts_[base + c], ute_[base + c]};
      });
    }
  }
}

void HostTileMap::build_rows() {
  const std::int64_t lists = shape_.batch * shape_.heads * grid_.row_tiles;
  row_runs_.resize(static_cast<std::size_t>(capacity_.row_runs + lists));
  row_begin_.resize(static_cast<std::size_t>(lists)), row_count_.resize(static_cast<std::size_t>(lists));
  std::vector<std::uint32_t> keys;
  std::int64_t run_offset = 0, bitmap_offset = 0;
  for (std::int64_t l = 0; l < lists; ++l) {
    const std::int64_t matrix = l / grid_.row_tiles;
    const auto row_tile = static_cast<std::int32_t>(l % grid_.row_tiles);
    List list = scan_list(matrix, row_tile, -1);
    const auto n = static_cast<std::int64_t>(list.runs.size());
    const Placement at = place(run_offset, n, capacity_.row_runs, static_cast<std::int32_t>(l));
    const bool bitmaps_fit = at.fits && bitmap_offset + list.partial_blocks <= capacity_.bitmaps;
    row_begin_[l] = at.begin, row_count_[l] = at.count;
    if (!at.fits) row_runs_[at.begin] = list.span(all_partial(grid_, row_tile), grid_.column_units);
    for (std::int64_t i = 0; at.fits && i < n; ++i) {
      Run& run = row_runs_[at.begin + i] = list.runs[i];
      if (run.bitmap >= 0) run.bitmap = bitmaps_fit ? static_cast<std::int32_t>(run.bitmap + bitmap_offset) : -1;
      if (run.bitmap >= 0) {
        bitmaps_.resize(std::int64_t{run.bitmap + run.count} * subtile_threads * grid_.subtiles());
        fill_bitmaps(matrix, row_tile, run);
      }
    }
    counts_.partial_subtiles += list.partial_subtiles, counts_.unmasked_subtiles += list.unmasked_subtiles;
    counts_.row_blocks_visited += list.visited, counts_.partial_blocks += list.partial_blocks, counts_.runs += n;
    counts_.bitmap_blocks += bitmaps_fit ? list.partial_blocks : 0, counts_.fallback_lists += !at.fits;
    run_offset += n, bitmap_offset += list.partial_blocks;
    keys.push_back(order_rule_.row_key(list.cost, static_cast<std::int32_t>(matrix)));
  }
  row_order_ = descending(keys);
}

void HostTileMap::build_columns() {
  const std::int64_t lists = shape_.batch * shape_.heads * grid_.column_blocks;
  column_runs_.resize(static_cast<std::size_t>(capacity_.column_runs + lists));
  column_begin_.resize(static_cast<std::size_t>(lists)), column_count_.resize(static_cast<std::size_t>(lists));
  std::vector<std::uint32_t> keys;
  std::int64_t offset = 0;
  for (std::int64_t l = 0; l < lists; ++l) {
    const List list = scan_list(l / grid_.column_blocks, -1, static_cast<std::int32_t>(l % grid_.column_blocks));
    const auto n = static_cast<std::int64_t>(list.runs.size());
    const Placement at = place(offset, n, capacity_.column_runs, static_cast<std::int32_t>(l));
    column_begin_[l] = at.begin, column_count_[l] = at.count;
    if (at.fits) {
      std::copy(list.runs.begin(), list.runs.end(), column_runs_.begin() + at.begin);
    } else {
      column_runs_[at.begin] = list.span(all_partial(grid_, list.runs.front().first), 1);
    }
    counts_.column_blocks_visited += list.visited, counts_.runs += n, counts_.fallback_lists += !at.fits;
    offset += n;
    keys.push_back(order_rule_.column_key(list.cost));
  }
  column_order_ = descending(keys);
}

HostTileMap HostTileMap::build(const MaskView& mask, TileShape shape, const MapCapacity& capacity,
                               const TileCosts& costs, const MapForm& form, std::int32_t section) {
  check_map_shape(mask.shape, shape, form);
  HostTileMap map;
  map.grid_ =
      tile_grid(static_cast<std::int32_t>(mask.shape.rows), static_cast<std::int32_t>(mask.shape.columns), shape, form);
  map.shape_ = mask.shape;
  map.capacity_ = usable_capacity(capacity, shape);
  map.costs_ = costs;
  map.order_rule_ =
      order_rule(map.grid_, costs, static_cast<std::int32_t>(mask.shape.batch * mask.shape.heads), section);
  map.prepare(mask);
  map.build_rows();
  map.build_columns();
  return map;
}

TileMapView HostTileMap::view() const {
  return {grid_.rows,
          grid_.columns,
          static_cast<std::int32_t>(shape_.batch),
          static_cast<std::int32_t>(shape_.heads),
          grid_.block_m,
          grid_.block_n,
          grid_.row_tiles,
          grid_.column_blocks,
          row_runs_.data(),
          row_begin_.data(),
          row_count_.data(),
          column_runs_.data(),
          column_begin_.data(),
          column_count_.data(),
          row_order_.data(),
          column_order_.data(),
          lts_.data(),
          lte_.data(),
          uts_.data(),
          ute_.data(),
          grid_.padded_columns,
          bitmaps_.data(),
          1 << grid_.packed_shift};
}

}  // namespace flashmask::sm90
