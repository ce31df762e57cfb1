#include "tile_options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "given.hpp"

namespace flashmask::app {

void add_tile_options(CLI::App& command, TileOptions& options) {
  const std::string group = "Tiles";
  const auto size = whole_number(1, 65536);
  command.add_option("--block-m", options.block_m, "Rows of a tile")->check(size)->capture_default_str()->group(group);
  command.add_option("--block-n", options.block_n, "Columns of a tile")
      ->check(size)
      ->capture_default_str()
      ->group(group);
  command.add_option("--rule", options.rule_name, "How tiles are classified: minmax (as kernels do) or exact")
      ->check(CLI::IsMember({"minmax", "exact"}))
      ->capture_default_str()
      ->group(group);
}

std::string_view class_name(TileClass tile_class) {
  switch (tile_class) {
    case TileClass::masked:
      return "masked";
    case TileClass::partial:
      return "partial";
    default:
      return "unmasked";
  }
}

std::string_view rule_name(TileRule rule) {
  return rule == TileRule::exact ? "exact" : "minmax";
}

void set_tiles(format::Json& value, const ColumnMask& mask, const TileMap& map) {
  const TileCounts counts = map.counts();
  const auto [block_m, block_n] = map.tile_shape();
  format::Json tiles, density;
  tiles.set("masked", counts.masked).set("partial", counts.partial).set("unmasked", counts.unmasked);
  value.set("tiles", std::move(tiles));
  value.set("tile_shape", format::Json::Integers{block_m, block_n}).set("rule", rule_name(map.rule()));
  density.set("element", element_density(mask)).set("tile", tile_density(mask));
  value.set("density", std::move(density));
}

void add_tiles(Sheet& sheet, const ColumnMask& mask, const TileMap& map) {
  const TileCounts counts = map.counts();
  const double total = static_cast<double>(std::max<std::int64_t>(1, counts.total()));
  const auto part = [&](const char* name, std::int64_t count) {
    return fmt::format("{} {} ({})", grouped(count), name, percent(static_cast<double>(count) / total));
  };
  sheet.add("tiles", fmt::format("{} x {}, {} rule: {}, {}, {}", map.tile_shape().block_m, map.tile_shape().block_n,
                                 rule_name(map.rule()), part("masked", counts.masked), part("partial", counts.partial),
                                 part("unmasked", counts.unmasked)));
  sheet.add("density", fmt::format("{} of the cells, {} of the 128 x 128 tiles", percent(element_density(mask)),
                                   percent(tile_density(mask))));
}

}  // namespace flashmask::app
