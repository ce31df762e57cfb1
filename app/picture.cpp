#include "picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/environment.hpp"

namespace flashmask::app {
namespace {

/// Whether the terminal is said to take UTF-8.
bool has_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const auto value = core::environment(name)) {
      return value->find("UTF-8") != std::string::npos || value->find("utf8") != std::string::npos;
    }
  }
  return false;
}

/// Takes [begin, end) out of the fields of one grid column; field i holds rows [i rows / fields, (i+1) rows / fields).
void hide(std::vector<std::int64_t>& hidden, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  const auto fields = static_cast<std::int64_t>(hidden.size());
  if (begin >= end) return;
  for (std::int64_t i = begin * fields / rows; i < fields; ++i) {
    const std::int64_t low = std::max(begin, i * rows / fields), high = std::min(end, (i + 1) * rows / fields);
    if (i * rows / fields >= end) break;
    hidden[static_cast<std::size_t>(i)] += std::max<std::int64_t>(0, high - low);
  }
}

/// Hidden cells of the fields of one grid column, over columns [begin, end).
std::vector<std::int64_t> hidden_of(const ColumnMask& mask, HeadPlace place, std::int64_t begin, std::int64_t end,
                                    std::int64_t height) {
  std::vector<std::int64_t> hidden(static_cast<std::size_t>(height));
  const std::int64_t rows = mask.shape().rows;
  for (std::int64_t column = begin; column < end; ++column) {
    const HiddenRows c = canonical(mask.at(place.batch, place.head, column), static_cast<std::int32_t>(rows));
    hide(hidden, rows, c.lts, c.lte);
    hide(hidden, rows, c.uts, c.ute);
  }
  return hidden;
}

constexpr std::string_view kPartialColour = "#7fb3d5", kUnmaskedColour = "#1f4e79", kMaskedColour = "#f4f4f4";

std::string rectangle(double x, double y, double width, double height, std::string_view colour) {
  return fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n", x, y, width,
                     height, colour);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// Where rows and columns lie on the page.
struct Page {
  double left = 40, top = 44, size = 640;
  double per_row, per_column;
  explicit Page(const MaskShape& shape) {
    const double longest = static_cast<double>(std::max<std::int64_t>(1, std::max(shape.rows, shape.columns)));
    per_row = per_column = size / longest;
  }
};

std::string tiles(const TileMap& map, HeadPlace place, const Page& page) {
  std::string out;
  const MaskShape& shape = map.mask_shape();
  const auto [block_m, block_n] = map.tile_shape();
  for (std::int64_t block = 0; block < map.row_blocks(); ++block) {
    const std::int64_t r0 = block * block_m, r1 = std::min<std::int64_t>(r0 + block_m, shape.rows);
    for (const TileRun& run : map.row(place.batch, place.head, block)) {
      const std::int64_t c0 = std::int64_t{run.first} * block_n;
      const std::int64_t c1 = std::min<std::int64_t>(c0 + std::int64_t{run.count} * block_n, shape.columns);
      out += rectangle(page.left + static_cast<double>(c0) * page.per_column,
                       page.top + static_cast<double>(r0) * page.per_row,
                       static_cast<double>(c1 - c0) * page.per_column, static_cast<double>(r1 - r0) * page.per_row,
                       run.tile_class == TileClass::unmasked ? kUnmaskedColour : kPartialColour);
    }
  }
  return out;
}

/// Dots over the visible cells; hidden ones stay as their tile is.
std::string cells(const ColumnMask& mask, HeadPlace place, const Page& page) {
  std::string out;
  const MaskShape& shape = mask.shape();
  for (std::int64_t column = 0; column < shape.columns; ++column) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      if (!mask.visible(place.batch, place.head, row, column)) continue;
      out += rectangle(page.left + (static_cast<double>(column) + 0.2) * page.per_column,
                       page.top + (static_cast<double>(row) + 0.2) * page.per_row, 0.6 * page.per_column,
                       0.6 * page.per_row, "#ffb000");
    }
  }
  return out;
}

}  // namespace

std::string terminal_picture(const ColumnMask& mask, HeadPlace place, std::int64_t width, std::int64_t height) {
  static constexpr std::string_view kShades[] = {" ", "░", "▒", "▓", "█"};
  static constexpr std::string_view kAscii[] = {" ", ".", "+", "*", "#"};
  const auto& shades = has_utf8() ? kShades : kAscii;
  const MaskShape& shape = mask.shape();
  width = std::min(width, shape.columns);
  height = std::min(height, shape.rows);
  if (width == 0 || height == 0) return "(no cells)\n";
  std::vector<std::string> lines(static_cast<std::size_t>(height));
  for (std::int64_t x = 0; x < width; ++x) {
    const std::int64_t begin = x * shape.columns / width, end = (x + 1) * shape.columns / width;
    const auto hidden = hidden_of(mask, place, begin, end, height);
    for (std::int64_t y = 0; y < height; ++y) {
      const std::int64_t all = ((y + 1) * shape.rows / height - y * shape.rows / height) * (end - begin);
      const std::int64_t visible = all - hidden[static_cast<std::size_t>(y)];
      // The extremes mean none and all; a single cell of difference shows.
      const std::int64_t shade = visible == 0     ? 0
                                 : visible == all ? 4
                                                  : 1 + std::min<std::int64_t>(2, 3 * visible / all);
      lines[static_cast<std::size_t>(y)] += shades[shade];
    }
  }
  std::string out;
  for (const std::string& line : lines) out += fmt::format("  |{}|\n", line);
  return out;
}

std::string svg_picture(const ColumnMask& mask, const TileMap& map, HeadPlace place, const std::string& title) {
  constexpr std::int64_t kCells = 256;
  const MaskShape& shape = mask.shape();
  const Page page(shape);
  const double width = static_cast<double>(shape.columns) * page.per_column;
  const double height = static_cast<double>(shape.rows) * page.per_row;
  const TileCounts counts = map.counts(place.batch, place.head);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n<text x=\"{2}\" y=\"20\">{3}</text>\n",
      page.left + page.size + 20, page.top + height + 56, page.left, escaped(title));
  out +=
      fmt::format("<text x=\"{}\" y=\"38\" font-size=\"11\">columns (keys) 0 … {}</text>\n", page.left, shape.columns);
  out += fmt::format(
      "<text x=\"30\" y=\"{}\" font-size=\"11\" transform=\"rotate(90 30 {})\">rows (queries) 0 … {}</text>\n",
      page.top, page.top, shape.rows);
  out += rectangle(page.left, page.top, width, height, kMaskedColour);
  out += tiles(map, place, page);
  if (shape.rows <= kCells && shape.columns <= kCells) out += cells(mask, place, page);
  double x = page.left;
  const double y = page.top + height + 20;
  for (const auto& [name, count, colour] :
       {std::tuple{"unmasked", counts.unmasked, kUnmaskedColour}, std::tuple{"partial", counts.partial, kPartialColour},
        std::tuple{"masked", counts.masked, kMaskedColour}}) {
    out += rectangle(x, y, 14, 14, colour);
    out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">{} tiles: {}</text>\n", x + 20, y + 12, name, count);
    x += 210;
  }
  out += fmt::format("<text x=\"{}\" y=\"{:.0f}\" font-size=\"11\">tiles of {} x {}</text>\n</svg>\n", page.left,
                     y + 30, map.tile_shape().block_m, map.tile_shape().block_n);
  return out;
}

std::string explain_cell(const ColumnMask& mask, HeadPlace place, std::int64_t row, std::int64_t column) {
  const HiddenRows c =
      canonical(mask.at(place.batch, place.head, column), static_cast<std::int32_t>(mask.shape().rows));
  const bool lower = row >= c.lts && row < c.lte, upper = row >= c.uts && row < c.ute;
  std::string out = fmt::format("row {} {} column {} (batch row {}, mask head {})\n", row,
                                lower || upper ? "does not see" : "sees", column, place.batch, place.head);
  const auto interval = [](const char* name, std::int32_t start, std::int32_t end) {
    return start < end ? fmt::format("{} [{}, {})", name, start, end) : fmt::format("{} none", name);
  };
  out += fmt::format("  column {} hides the rows {} and {}\n", column, interval("[UTS, UTE) =", c.uts, c.ute),
                     interval("[LTS, LTE) =", c.lts, c.lte));
  if (upper) out += fmt::format("  row {} lies in [UTS, UTE): {} <= {} < {}\n", row, c.uts, row, c.ute);
  if (lower) out += fmt::format("  row {} lies in [LTS, LTE): {} <= {} < {}\n", row, c.lts, row, c.lte);
  if (!upper && !lower) out += fmt::format("  row {} lies in neither\n", row);
  return out;
}

}  // namespace flashmask::app
