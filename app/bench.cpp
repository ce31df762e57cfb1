// `flashmask bench`: the same shapes as `run`, timed; one JSON schema for every backend (docs/bench-schema.md).
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <optional>

#include "attention_options.hpp"
#include "bench_record.hpp"
#include "command.hpp"
#include "core/check.hpp"
#include "core/parallel_for.hpp"
#include "given.hpp"
#include "mask_request.hpp"
#include "problem.hpp"
#include "report.hpp"
#include "sm90_report.hpp"
#include "tile_options.hpp"

namespace flashmask::app {
namespace {

using format::Json;

struct Options {
  MaskRequest request;
  AttentionOptions attention;
  TileOptions tile;
  bool twelve = false;
  std::optional<int> warmups, repeats;
  std::string json;

  [[nodiscard]] int warmup_count() const { return warmups.value_or(on_sm90(attention) ? 3 : 1); }
  /// 0 on a GPU: as many as the length of a launch asks for.
  [[nodiscard]] int repeat_count() const { return repeats.value_or(on_sm90(attention) ? 0 : 5); }
};

/// The masks of MASKS every benchmark of the project reports: the first twelve builders.
std::vector<std::string> twelve_masks() {
  std::vector<std::string> names;
  for (const auto& builder : masks::builder_names().first(12)) names.emplace_back(builder.name);
  return names;
}

/// The pack of the public benchmark for the rows asked for.
std::string default_workload(const MaskRequest& request) {
  return fmt::format("pack:{}:0", request.columns ? *request.columns : request.rows.value_or(8192));
}

/// What is known of a result before it is timed.
BenchResult describe(const NamedMask& named, const Options& options, const TileMap& map) {
  BenchResult result;
  result.mask = named.name;
  result.builder = named.builder;
  result.digest = named.mask.digest();
  result.visible_cells = named.mask.visible_cells();
  result.mask_heads = named.mask.shape().heads;
  result.shape = shape_of(options.attention, named.mask.shape());
  result.dtype = parse_dtype(options.attention.dtype);
  result.work = work_of(result.shape, named.mask);
  set_tiles(result.tiles, named.mask, map);
  return result;
}

void time_on_cpu(BenchResult& result, const NamedMask& named, const TileMap& map, const Options& options,
                 Progress& progress) {
  Problem problem(result.shape, result.dtype, named.mask, map, options.attention.threads, options.request.seed);
  for (int i = 0; i < options.warmup_count() + options.repeat_count(); ++i) {
    const double forward = problem.run_forward();
    progress.advance();
    const double backward = problem.run_backward();
    progress.advance();
    if (i < options.warmup_count()) continue;
    result.forward.push_back(forward);
    result.backward.push_back(backward);
  }
}

/// One problem on the GPU, kept from mask to mask while the shape stays.
class DeviceBench {
 public:
  void time(BenchResult& result, const NamedMask& named, const Options& options, Progress& progress) {
    prepare(result.shape, result.dtype, options.request.seed);
    engine_->set_mask(named.mask);
    const Sm90Protocol protocol{options.warmup_count(), options.repeat_count()};
    Sm90Times times = engine_->time_forward(protocol);
    result.forward = std::move(times.burst), result.forward_sustained = std::move(times.sustained);
    progress.advance();
    times = engine_->time_backward(protocol);
    result.backward = std::move(times.burst), result.backward_sustained = std::move(times.sustained);
    progress.advance();
    result.device = engine_->report();
  }

 private:
  void prepare(const AttentionShape& s, DType dtype, std::uint64_t seed) {
    if (engine_ && s == shape_) return;
    engine_.reset();  // its memory first
    engine_.emplace(s, dtype);
    shape_ = s;
    Tensor q(s.batch, s.rows, s.query_heads, s.head_dim, dtype), k(s.batch, s.columns, s.kv_heads, s.head_dim, dtype);
    Tensor v = k, dout = q;
    std::uint64_t stream = 0;
    for (Tensor* tensor : {&q, &k, &v, &dout}) tensor->fill_random(seed, stream++);
    engine_->upload(q.view(), k.view(), v.view(), dout.view());
  }

  AttentionShape shape_;
  std::optional<Sm90Engine> engine_;
};

/// Median, spread and both conventions of one pass; on a GPU also the sustained figures.
void add_pass(std::vector<std::string>& row, const std::vector<double>& times, const std::vector<double>& sustained,
              const Work& work, double factor) {
  const Spread spread = spread_of(times);
  row.push_back(fmt::format("{:.4g}", spread.median));
  row.push_back(percent((spread.maximum - spread.minimum) / spread.median));
  row.push_back(fmt::format("{:.3g}", factor * work.element / spread.median / 1e9));
  row.push_back(fmt::format("{:.3g}", factor * work.tile / spread.median / 1e9));
  if (!sustained.empty()) {
    row.push_back(fmt::format("{:.3g}", factor * work.tile / spread_of(sustained).median / 1e9));
  }
}

std::string table_of(const std::vector<BenchResult>& results) {
  const bool device = results[0].device.has_value();
  std::vector<std::string> header{"mask"};
  if (device) header.emplace_back("forward tile");
  for (const char* pass : {"forward ms", "backward ms"}) {
    header.insert(header.end(), {pass, "spread", "TFLOP/s element", "tile"});
    if (device) header.emplace_back("sustained");
  }
  Table table(std::move(header));
  for (const BenchResult& result : results) {
    std::vector<std::string> row{result.mask};
    if (device)
      row.push_back(fmt::format("{}x{}", result.device->forward_tile.block_m, result.device->forward_tile.block_n));
    add_pass(row, result.forward, result.forward_sustained, result.work, 1);
    add_pass(row, result.backward, result.backward_sustained, result.work, kBackwardFactor);
    table.add(std::move(row));
  }
  return table.text();
}

/// The geometric means over masks that people quote: tile convention, forward and backward.
std::string means_of(const std::vector<BenchResult>& results) {
  double forward = 0, backward = 0;
  for (const BenchResult& r : results) {
    forward += std::log(r.work.tile / spread_of(r.forward).median / 1e9);
    backward += std::log(kBackwardFactor * r.work.tile / spread_of(r.backward).median / 1e9);
  }
  const auto count = static_cast<double>(results.size());
  return fmt::format("geometric mean of {} masks, TFLOP/s tile: forward {:.3g}, backward {:.3g}\n", results.size(),
                     std::exp(forward / count), std::exp(backward / count));
}

/// The masks asked for, each over documents scaled to --rows where nothing else is said.
std::vector<MaskRequest> requests_of(const Options& options) {
  core::check(!options.twelve || (options.request.mask.empty() && options.request.import_file.empty()),
              "--twelve runs all twelve masks: leave --mask and --import out");
  if (!options.twelve) return {options.request};
  std::vector<MaskRequest> requests;
  for (const std::string& name : twelve_masks()) {
    requests.push_back(options.request);
    requests.back().mask = name;
    requests.back().served = twelve_masks();
    if (options.request.workload.empty()) requests.back().workload = default_workload(options.request);
  }
  return requests;
}

BenchProtocol protocol_of(const Options& options) {
  if (!on_sm90(options.attention)) return {"wall clock, back to back", options.warmup_count(), options.repeat_count()};
  return {"events on the device around launches queued back to back after 0.5 s of idle time", options.warmup_count(),
          options.repeat_count(), "six batches of at least 45 ms without idle time, after two that are not counted"};
}

void execute(const Options& options) {
  const bool device = on_sm90(options.attention);
  const std::vector<MaskRequest> requests = requests_of(options);
  check_backend(options.attention);
  check_writable(options.json);
  if (device) {  // every option before the device, and the device before any work
    for (const MaskRequest& request : requests) {
      static_cast<void>(shape_of(options.attention, check_request(request, default_workload(request))));
    }
    require_sm90();
  }
  std::vector<BenchResult> results;
  {
    const int runs = device ? 1 : options.warmup_count() + options.repeat_count();
    Progress progress("timing", 2 * static_cast<std::int64_t>(requests.size()) * runs);
    DeviceBench on_device;
    for (const MaskRequest& request : requests) {
      const NamedMask named = build(request, default_workload(request));
      const TileMap map = TileMap::build(named.mask, options.tile.shape(), options.tile.rule());
      BenchResult& result = results.emplace_back(describe(named, options, map));
      if (device) {
        on_device.time(result, named, options, progress);
      } else {
        time_on_cpu(result, named, map, options, progress);
      }
      log("bench", fmt::format("{}: forward {}, backward {}", result.mask, duration(spread_of(result.forward).median),
                               duration(spread_of(result.backward).median)));
    }
  }
  const int threads = core::thread_count(options.attention.threads);
  const BenchProtocol protocol = protocol_of(options);
  if (!options.json.empty()) {
    write_json(options.json, bench_json(results, options.attention.backend, threads, protocol));
  }
  if (options.json == "-") return;
  const std::string where = device ? device_text(*results[0].device) : fmt::format("{} threads", threads);
  const std::string repeats =
      protocol.repeats == 0 ? "9 repeats (5 above 40 ms)" : fmt::format("{} repeats", protocol.repeats);
  fmt::print("{}\n{}, {} warm-ups, {}; medians, spread = (max - min) / median\n\n{}",
             shape_text(results[0].shape, results[0].dtype), where, protocol.warmups, repeats, table_of(results));
  if (results.size() > 1) fmt::print("\n{}", means_of(results));
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
      "  flashmask bench --backend sm90 --twelve --rows 32768 --heads 16 --json gpu.json   burst and sustained on a "
      "GPU\n"
      "bench/peer_torch_cpu.py and, on a GPU, bench/peers_gpu.py run PyTorch on the same masks and fill the peer "
      "slots.");
  add_mask_options(*command, options->request);
  add_attention_options(*command, options->attention);
  add_tile_options(*command, options->tile);
  const std::string group = "How to time and to print";
  command->add_flag("--twelve", options->twelve, "The twelve benchmark masks, each laid over the workload")
      ->group(group);
  command->add_option("--warmups", options->warmups, "Untimed runs first; 1, or 3 with --backend sm90")
      ->check(whole_number(0, 1000))
      ->group(group);
  command
      ->add_option("--repeats", options->repeats,
                   "Timed runs; 5, or with --backend sm90 9 (5 where a launch takes over 40 ms)")
      ->check(whole_number(1, 100000))
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
