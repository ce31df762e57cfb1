// Tile shape and rule as options, and tile figures as every command prints them.
#pragma once

#include <string>
#include <string_view>

#include "flashmask/tile.hpp"
#include "format/json.hpp"
#include "report.hpp"

namespace CLI {
class App;
}

namespace flashmask::app {

struct TileOptions {
  std::int32_t block_m = 128;
  std::int32_t block_n = 128;
  std::string rule_name = "minmax";

  [[nodiscard]] TileShape shape() const { return {block_m, block_n}; }
  [[nodiscard]] TileRule rule() const { return rule_name == "exact" ? TileRule::exact : TileRule::minmax; }
};

/// Adds --block-m, --block-n and --rule.
void add_tile_options(CLI::App& command, TileOptions& options);

std::string_view class_name(TileClass tile_class);
std::string_view rule_name(TileRule rule);

/// Members "tiles" {masked, partial, unmasked, tile_shape, rule} and "density" {element, tile}.
void set_tiles(format::Json& value, const ColumnMask& mask, const TileMap& map);
/// The same as lines for people.
void add_tiles(Sheet& sheet, const ColumnMask& mask, const TileMap& map);

}  // namespace flashmask::app
