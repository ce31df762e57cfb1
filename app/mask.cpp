// `flashmask mask`: build or import a mask and look at it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <array>
#include <limits>

#include "command.hpp"
#include "core/check.hpp"
#include "flashmask/imports.hpp"
#include "flashmask/tile.hpp"
#include "format/mask_json.hpp"
#include "given.hpp"
#include "mask_request.hpp"
#include "picture.hpp"
#include "report.hpp"
#include "tile_options.hpp"

namespace flashmask::app {
namespace {

using core::check;
using core::fail;
using format::Json;

struct Options {
  MaskRequest request;
  TileOptions tile;
  std::optional<std::array<std::int64_t, 2>> explain, at;
  HeadPlace place;
  std::string svg, json, export_format, output = "-";
  bool list = false;
};

/// Cells that --export dense writes at most: two bytes each.
constexpr std::int64_t kDenseCells = std::int64_t{1} << 28;

std::string dense_text(const ColumnMask& mask) {
  const MaskShape& shape = mask.shape();
  const std::int64_t heads = shape.batch * shape.heads;
  check(shape.rows * shape.columns <= kDenseCells / std::max<std::int64_t>(1, heads),
        "--export dense: {} x {} x {} x {} cells are more than {}; choose fewer rows", shape.batch, shape.heads,
        shape.rows, shape.columns, kDenseCells);
  std::string out = "[";
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    out += b == 0 ? "[" : ",[";
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      out += h == 0 ? "[" : ",[";
      const auto cells = mask.dense(b, h);
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        out += row == 0 ? "[" : ",\n[";
        for (std::int64_t column = 0; column < shape.columns; ++column) {
          if (column > 0) out += ',';
          out += cells[static_cast<std::size_t>(row * shape.columns + column)] != 0 ? '1' : '0';
        }
        out += ']';
      }
      out += ']';
    }
    out += ']';
  }
  return out + "]\n";
}

std::string exported(const ColumnMask& mask, const std::string& name) {
  if (name == "vectors") return format::to_json(mask);
  if (name == "dense") return dense_text(mask);
  const masks::CuSeqlens offsets = masks::to_cu_seqlens(mask);
  Json value;
  value.set("q", Json::Integers(offsets.q.begin(), offsets.q.end()));
  value.set("k", Json::Integers(offsets.k.begin(), offsets.k.end()));
  value.set("causal", offsets.causal);
  return value.dump() + "\n";
}

/// Where a token of a packed row belongs, e.g. "document 3 [100, 180)"; empty where that is unknown.
std::string owner(const format::Workload& workload, std::int64_t batch, std::int64_t token) {
  const format::PackedRow& row = workload.batch[static_cast<std::size_t>(batch)];
  std::int64_t begin = 0;
  const auto find = [&](const auto& pieces, const char* name) -> std::string {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::int64_t end = begin + pieces[i].length;
      if (token < end) return fmt::format("{} {} [{}, {})", name, i, begin, end);
      begin = end;
    }
    return "the padding";
  };
  return row.tree.empty() ? find(row.documents, "document") : find(row.tree, "tree node");
}

std::string explanation(const NamedMask& named, const TileMap& map, const Options& options) {
  const MaskShape& shape = named.mask.shape();
  const auto [row, column] = *options.explain;
  check(row < shape.rows, "--explain {} {}: row {} is outside [0, {}), the rows of the mask", row, column, row,
        shape.rows);
  check(column < shape.columns, "--explain {} {}: column {} is outside [0, {}), the columns of the mask", row, column,
        column, shape.columns);
  std::string out = explain_cell(named.mask, options.place, row, column);
  const std::int64_t token = row + shape.columns - shape.rows;
  if (named.workload && token >= 0) {
    out += fmt::format("  row {} belongs to {}, column {} to {}\n", row,
                       owner(*named.workload, options.place.batch, token), column,
                       owner(*named.workload, options.place.batch, column));
  }
  if (column > token) out += fmt::format("  the column lies {} tokens after the row's own\n", column - token);
  if (column < token) out += fmt::format("  the column lies {} tokens before the row's own\n", token - column);
  const auto [block_m, block_n] = map.tile_shape();
  out += fmt::format("  its tile, row block {} and column block {}, is {}\n", row / block_m, column / block_n,
                     class_name(map.at(options.place.batch, options.place.head, row / block_m, column / block_n)));
  return out;
}

Json statistics(const NamedMask& named, const TileMap& map) {
  const MaskShape& shape = named.mask.shape();
  Json value;
  value.set("mask", named.name).set("builder", named.builder);
  value.set("batch", shape.batch).set("mask_heads", shape.heads).set("rows", shape.rows).set("columns", shape.columns);
  value.set("visible_cells", named.mask.visible_cells());
  set_tiles(value, named.mask, map);
  value.set("digest", fmt::format("{:016x}", named.mask.digest()));
  return value;
}

std::string sheet(const NamedMask& named, const TileMap& map) {
  const MaskShape& shape = named.mask.shape();
  Sheet out;
  out.add("mask", named.name);
  out.add("shape", fmt::format("batch {}, mask heads {}, rows {}, columns {}", shape.batch, shape.heads,
                               grouped(shape.rows), grouped(shape.columns)));
  if (named.workload) {
    std::size_t documents = 0, nodes = 0;
    for (const auto& row : named.workload->batch) documents += row.documents.size(), nodes += row.tree.size();
    if (documents > 0) out.add("documents", grouped(static_cast<std::int64_t>(documents)));
    if (nodes > 0) out.add("tree nodes", grouped(static_cast<std::int64_t>(nodes)));
  }
  out.add("visible", fmt::format("{} of {} cells, {}", grouped(named.mask.visible_cells()),
                                 grouped(shape.batch * shape.heads * shape.rows * shape.columns),
                                 percent(element_density(named.mask))));
  add_tiles(out, named.mask, map);
  out.add("digest", fmt::format("{:016x}", named.mask.digest()));
  return out.text();
}

void list_names() {
  fmt::print("Builders (--mask):\n");
  for (const auto& builder : masks::builder_names()) fmt::print("  {:<22} {}\n", builder.name, builder.description);
  fmt::print("\nWorkload generators (--workload):\n");
  for (const auto& info : format::generators()) fmt::print("  {:<27} {}\n", info.form, info.meaning);
}

/// The option that writes to standard output, if any; refuses two outputs to one place.
std::string taken_output(const Options& options) {
  const bool exports = !options.export_format.empty();
  return check_outputs({{options.output == "-" ? "--export" : "--output", exports ? options.output : ""},
                        {"--json", options.json},
                        {"--svg", options.svg}});
}

/// Refuses what would be asked for and not done.
void check_use(const CLI::App& command, const Options& options) {
  if (options.list) {
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_name() == "--list") continue;
      refuse_given(command, {option->get_name()}, "--list prints names and stops");
    }
  }
  if (options.export_format.empty())
    refuse_given(command, {"--output"}, "it is where --export writes, and that is not given");
  const std::string standard = taken_output(options);
  if (!standard.empty())
    refuse_given(command, {"--explain"}, fmt::format("standard output already takes what {} writes", standard));
}

void execute(const CLI::App& command, const Options& options) {
  check_use(command, options);
  if (options.list) return list_names();
  const NamedMask named = build(options.request, "");
  const MaskShape& shape = named.mask.shape();
  check(options.place.batch < shape.batch, "--at: batch row {} is outside [0, {})", options.place.batch, shape.batch);
  check(options.place.head < shape.heads, "--at: mask head {} is outside [0, {})", options.place.head, shape.heads);
  if (!options.export_format.empty()) format::write_file(options.output, exported(named.mask, options.export_format));
  const TileMap map = TileMap::build(named.mask, options.tile.shape(), options.tile.rule());
  if (!options.svg.empty()) format::write_file(options.svg, svg_picture(named.mask, map, options.place, named.name));
  if (!options.json.empty()) write_json(options.json, statistics(named, map));
  if (!taken_output(options).empty()) return;
  if (options.explain) {
    fmt::print("{}", explanation(named, map, options));
    return;
  }
  fmt::print("{}{}", sheet(named, map), terminal_picture(named.mask, options.place, 64, 32));
  if (shape.batch * shape.heads > 1)
    fmt::print("  (batch row {}, mask head {}; --at B H shows another)\n", options.place.batch, options.place.head);
}

}  // namespace

void add_mask(CLI::App& parent, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = parent.add_subcommand("mask", "Build or import a mask and look at it");
  command->footer(
      "Examples:\n"
      "  flashmask mask --list\n"
      "  flashmask mask --mask sliding_window --rows 4096 --window 512\n"
      "  flashmask mask --workload histogram --rows 8192 --svg mask.svg\n"
      "  flashmask mask --workload pack:8192 --mask prefix_lm_document --explain 4000 100\n"
      "  flashmask mask --import offsets.json --format cu_seqlens --causal --export vectors > mask.json");
  add_mask_options(*command, options->request);
  add_tile_options(*command, options->tile);
  const std::string group = "What to do with it";
  command->add_flag("--list", options->list, "List the builders and generators and stop")->group(group);
  add_pair(*command, "--explain", options->explain, "ROW COLUMN", "Why a cell is hidden or visible")->group(group);
  add_pair(*command, "--at", options->at, "BATCH_ROW MASK_HEAD",
           "Batch row and mask head for pictures and --explain (default 0 0)")
      ->group(group);
  command->add_option("--svg", options->svg, "Write a picture of the tiles to this file; - is standard output")
      ->group(group);
  command
      ->add_option("--export", options->export_format, "Write the mask: dense, cu_seqlens or vectors (docs/command.md)")
      ->check(CLI::IsMember({"dense", "cu_seqlens", "vectors"}))
      ->group(group);
  command->add_option("--output", options->output, "File for --export; - is standard output")
      ->capture_default_str()
      ->group(group);
  command->add_option("--json", options->json, "Write the figures as JSON to this file; - is standard output")
      ->expected(0, 1)
      ->default_str("-")
      ->group(group);
  command->callback([options, command, &exit_code] {
    if (options->at) options->place = {(*options->at)[0], (*options->at)[1]};
    execute(*command, *options);
    exit_code = 0;
  });
}

}  // namespace flashmask::app
