// What the exact classification saves over the minmax rule on the twelve benchmark masks (docs/tile.md): prints one
// Markdown row a mask. Usage: tile_rules [PACK [BLOCK_M [BLOCK_N]]], e.g. tile_rules pack:32768 128 128
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "flashmask/builders.hpp"
#include "flashmask/tile.hpp"
#include "format/workload.hpp"

namespace {

using namespace flashmask;  // NOLINT: a program of one file

/// Milliseconds of the fastest of five calls.
template <typename F>
double milliseconds(const F& f) {
  double best = 1e30;
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void print_mask(std::string_view name, const masks::BuilderOptions& options, TileShape shape) {
  const ColumnMask mask = masks::build(name, options);
  const TileCounts minmax = tile_counts(mask, shape, TileRule::minmax);
  const TileCounts exact = tile_counts(mask, shape, TileRule::exact);
  const double minmax_ms = milliseconds([&] { TileMap::build(mask, shape, TileRule::minmax); });
  const double exact_ms = milliseconds([&] { TileMap::build(mask, shape, TileRule::exact); });
  const double work = static_cast<double>(minmax.partial + minmax.unmasked);
  fmt::print("| {} | {} | {} | {} | {} | {:.2f}% | {:.2f} / {:.2f} |\n", name, minmax.partial, minmax.unmasked,
             exact.partial, exact.unmasked, 100 * (work - static_cast<double>(exact.partial + exact.unmasked)) / work,
             minmax_ms, exact_ms);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string pack = argc > 1 ? argv[1] : "pack:8192";
  TileShape shape{128, 128};
  if (argc > 2) shape.block_m = std::atoi(argv[2]);
  if (argc > 3) shape.block_n = std::atoi(argv[3]);
  const format::Workload workload = format::generate(pack);
  fmt::print("{}, {} rows, tiles {} x {}\n\n", pack, workload.rows, shape.block_m, shape.block_n);
  fmt::print("| mask | partial | unmasked | exact partial | exact unmasked | tiles saved | map ms minmax / exact |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const auto& builder : masks::builder_names().first(12)) {
    print_mask(builder.name, format::builder_options(workload), shape);
  }
  return 0;
}
