// Pictures of one mask head: shades in the terminal, tiles and cells in an SVG file.
#pragma once

#include <cstdint>
#include <string>

#include "flashmask/mask.hpp"
#include "flashmask/tile.hpp"

namespace flashmask::app {

/// Which mask of a batch.
struct HeadPlace {
  std::int64_t batch = 0;
  std::int64_t head = 0;
};

/// Visible share in a grid of at most `width` x `height` fields, darker is more visible; one line a row of the grid.
std::string terminal_picture(const ColumnMask& mask, HeadPlace place, std::int64_t width, std::int64_t height);

/// The tiles by class, with the cells drawn one by one when there are at most 256 x 256.
std::string svg_picture(const ColumnMask& mask, const TileMap& map, HeadPlace place, const std::string& title);

/// Why `row` sees or does not see `column`, in a few lines: the column's intervals, and which one holds the row.
std::string explain_cell(const ColumnMask& mask, HeadPlace place, std::int64_t row, std::int64_t column);

}  // namespace flashmask::app
