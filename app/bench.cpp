// `flashmask bench`: the same shapes as `run`, timed; one JSON schema for every backend (docs/bench-schema.md).
#include <fmt/format.h>

#include "attention_options.hpp"
#include "bench_record.hpp"
#include "command.hpp"
#include "core/check.hpp"
#include "core/parallel_for.hpp"
#include "mask_request.hpp"
#include "problem.hpp"
#include "report.hpp"
#include "tile_options.hpp"

namespace flashmask::app {
namespace {

using format::Json;

struct Options {
  MaskRequest request;
  AttentionOptions attention;
  TileOptions tile;
  bool twelve = false;
  int warmups = 1;
  int repeats = 5;
  std::string json;
};

/// The masks of MASKS every benchmark of the project reports: the first twelve builders.
std::vector<std::string> twelve_masks() {
  std::vector<std::string> names;
  for (const auto& builder : masks::builder_names().first(12)) names.emplace_back(builder.name);
  return names;
}

BenchResult bench_mask(const NamedMask& named, const Options& options, Progress& progress) {
  const AttentionShape shape = shape_of(options.attention, named.mask);
  const DType dtype = parse_dtype(options.attention.dtype);
  const TileMap map = TileMap::build(named.mask, options.tile.shape(), options.tile.rule());
  Problem problem(shape, dtype, named.mask, map, options.attention.threads, options.request.seed);
  BenchResult result;
  result.mask = named.name;
  result.builder = named.builder;
  result.digest = named.mask.digest();
  result.visible_cells = named.mask.visible_cells();
  result.mask_heads = named.mask.shape().heads;
  result.shape = shape;
  result.dtype = dtype;
  result.work = work_of(shape, named.mask);
  set_tiles(result.tiles, named.mask, map);
  for (int i = 0; i < options.warmups + options.repeats; ++i) {
    const double forward = problem.run_forward();
    progress.advance();
    const double backward = problem.run_backward();
    progress.advance();
    if (i < options.warmups) continue;
    result.forward.push_back(forward);
    result.backward.push_back(backward);
  }
  return result;
}

std::string table_of(const std::vector<BenchResult>& results) {
  Table table(
      {"mask", "forward ms", "spread", "TFLOP/s element", "tile", "backward ms", "spread", "TFLOP/s element", "tile"});
  for (const BenchResult& result : results) {
    std::vector<std::string> row{result.mask};
    for (const auto& [times, factor] :
         {std::pair{&result.forward, 1.0}, std::pair{&result.backward, kBackwardFactor}}) {
      const Spread spread = spread_of(*times);
      row.push_back(fmt::format("{:.4g}", spread.median));
      row.push_back(percent((spread.maximum - spread.minimum) / spread.median));
      row.push_back(fmt::format("{:.3g}", factor * result.work.element / spread.median / 1e9));
      row.push_back(fmt::format("{:.3g}", factor * result.work.tile / spread.median / 1e9));
    }
    table.add(std::move(row));
  }
  return table.text();
}

void execute(const Options& options) {
  core::check(!options.twelve || options.request.mask.empty(), "--twelve runs all twelve masks: leave --mask out");
  std::vector<MaskRequest> requests(1, options.request);
  if (options.twelve) {
    requests.clear();
    for (const std::string& name : twelve_masks()) {
      requests.push_back(options.request);
      requests.back().mask = name;
      if (options.request.workload.empty()) requests.back().workload = "pack:8192:0";
    }
  }
  std::vector<BenchResult> results;
  {
    Progress progress("timing", 2 * static_cast<std::int64_t>(requests.size()) * (options.warmups + options.repeats));
    for (const MaskRequest& request : requests) {
      results.push_back(bench_mask(build(request, "pack:8192:0"), options, progress));
      log("bench", fmt::format("{}: forward {}, backward {}", results.back().mask,
                               duration(spread_of(results.back().forward).median),
                               duration(spread_of(results.back().backward).median)));
    }
  }
  const int threads = core::thread_count(options.attention.threads);
  if (!options.json.empty()) {
    BenchProtocol protocol{"wall clock, back to back", options.warmups, options.repeats};
    write_json(options.json, bench_json(results, options.attention.backend, threads, protocol));
  }
  if (options.json == "-") return;
  fmt::print("{}\n{} threads, {} warm-ups, {} repeats; medians, spread = (max - min) / median\n\n{}",
             shape_text(results[0].shape, results[0].dtype), threads, options.warmups, options.repeats,
             table_of(results));
}

}  // namespace

void add_bench(CLI::App& parent, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = parent.add_subcommand("bench", "Time forward and backward; JSON out for comparison");
  command->footer(
      "Examples:\n"
      "  flashmask bench                                        causal_document on the first 8K pack\n"
      "  flashmask bench --twelve --json twelve.json            the twelve benchmark masks on that pack\n"
      "  flashmask bench --workload pack:32768:0 --heads 2 --repeats 3 --json -\n"
      "bench/peer_torch_cpu.py runs PyTorch on the same masks and fills the peer slots of the JSON.");
  add_mask_options(*command, options->request);
  add_attention_options(*command, options->attention);
  add_tile_options(*command, options->tile);
  const std::string group = "How to time and to print";
  command->add_flag("--twelve", options->twelve, "The twelve benchmark masks, each laid over the workload")
      ->group(group);
  command->add_option("--warmups", options->warmups, "Untimed runs first")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str()
      ->group(group);
  command->add_option("--repeats", options->repeats, "Timed runs")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str()
      ->group(group);
  command->add_option("--json", options->json, "Write the figures as JSON to this file; - is standard output")
      ->expected(0, 1)
      ->default_str("-")
      ->group(group);
  add_bench_balance(*command, exit_code);
  command->callback([options, command, &exit_code] {
    if (!command->get_subcommands().empty()) return;  // a benchmark of its own, e.g. `bench balance`
    execute(*options);
    exit_code = 0;
  });
}

}  // namespace flashmask::app
