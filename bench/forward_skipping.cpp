// What forms of the tile map would save the Hopper forward kernel, from counts alone (docs/forward.md, "Counted
// first"): prints, a mask and form, the modelled time over that of the best plain tile, in brackets the work computed
// over the work visible, once by row tiles and once by their 64-row subtiles. The kernel's time lies between the two.
//
// Usage: forward_skipping [WORKLOAD [ROWS [MASK...]]], e.g. forward_skipping histogram 8192 causal_document
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "flashmask/builders.hpp"
#include "flashmask/tile.hpp"
#include "format/workload.hpp"
#include "sm90/tile_map/host_map.hpp"

namespace {

using namespace flashmask;  // NOLINT: a program of one file

/// Cycles of a row tile and of an unmasked 192 x 80 block, and what 64-wide blocks and packed heads cost
/// more a column (docs/forward.md).
constexpr double tile_cycles = 1700, block_cycles = 2360, narrow = 1.03, packed_rows = 1.018;

struct Count {
  double cycles, by_tiles, by_subtiles;
};

Count count(const ColumnMask& mask, std::int32_t block_n, const sm90::MapForm& form) {
  const TileShape tile{192 / form.packed_heads, block_n};
  sm90::MapCapacity capacity = sm90::default_capacity(mask.shape(), tile, 0, form);
  const sm90::HostTileMap map = sm90::HostTileMap::build(mask.view(), tile, capacity, {}, form);
  const sm90::MapCounts& c = map.counts();
  const double heads = form.packed_heads, cells = static_cast<double>(mask.visible_cells());
  const auto visited = static_cast<double>(c.row_blocks_visited), partial = static_cast<double>(c.partial_blocks);
  const auto subtiles = static_cast<double>(c.partial_subtiles + c.unmasked_subtiles);
  const double block = block_cycles * block_n / 80 * (form.packed_heads > 1 ? packed_rows : block_n == 64 ? narrow : 1);
  return {(tile_cycles * map.view().row_tiles + block * (visited + 0.08 * partial)) / heads,
          visited * 192 * block_n / heads / cells, subtiles * 64 * block_n / heads / cells};
}

void print_mask(std::string_view name, const masks::BuilderOptions& options) {
  const ColumnMask mask = masks::build(name, options);
  const double best = std::min(count(mask, 80, {}).cycles, count(mask, 64, {}).cycles);
  fmt::print("| {} |", name);
  for (const Count& c : {count(mask, 80, {}), count(mask, 64, {}), count(mask, 80, {.packed_heads = 8})}) {
    fmt::print(" {:.3f} ({:.2f} {:.2f}) |", c.cycles / best, c.by_tiles, c.by_subtiles);
  }
  const Count exact = count(mask, 64, {.rule = TileRule::exact}), exact80 = count(mask, 80, {.rule = TileRule::exact});
  fmt::print(" {:.3f} |\n", std::min(exact.cycles, exact80.cycles) / best);
}

}  // namespace

int main(int argc, char** argv) {
  format::GeneratorOptions generator;
  if (argc > 2) generator.rows = std::atoll(argv[2]);
  const format::Workload workload = format::generate(argc > 1 ? argv[1] : "histogram", generator);
  std::vector<std::string_view> names(argv + std::min(argc, 3), argv + argc);
  if (names.empty()) {
    for (const auto& builder : masks::builder_names().first(12)) names.push_back(builder.name);
  }
  fmt::print("| mask | 192 x 80 | 192 x 64 | 8 heads packed, 24 x 80 | exact |\n|---|---|---|---|---|\n");
  for (const std::string_view name : names) print_mask(name, format::builder_options(workload));
  return 0;
}
