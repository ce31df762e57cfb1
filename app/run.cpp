// `flashmask run`: the main job. Masked attention, forward and backward, on a packed batch, proved exact.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <array>
#include <optional>
#include <utility>

#include "attention_options.hpp"
#include "command.hpp"
#include "core/check.hpp"
#include "core/parallel_for.hpp"
#include "given.hpp"
#include "mask_request.hpp"
#include "problem.hpp"
#include "ranks.hpp"
#include "report.hpp"
#include "sm90_report.hpp"
#include "tile_options.hpp"
#include "verify.hpp"

namespace flashmask::app {
namespace {

using format::Json;

/// Floating point operations the oracle may take before it is asked for a sample only: some seconds a core.
constexpr double kOracleBudget = 2e10;

constexpr const char* kDefaultWorkload = "histogram";

struct Options {
  MaskRequest request;
  AttentionOptions attention;
  TileOptions tile;
  RanksOptions ranks;
  std::string check = "oracle";
  std::string json;
};

struct Times {
  double classify = 0, forward = 0, backward = 0, verify = 0;
};

double tera(double operations, double milliseconds) {
  return operations / milliseconds / 1e9;
}

Json times_json(const Times& times) {
  Json value;
  value.set("classify", times.classify).set("forward", times.forward).set("backward", times.backward);
  return value;
}

Json tflops_json(const Work& work, const Times& times) {
  Json forward, backward, value;
  forward.set("element", tera(work.element, times.forward)).set("tile", tera(work.tile, times.forward));
  backward.set("element", tera(kBackwardFactor * work.element, times.backward))
      .set("tile", tera(kBackwardFactor * work.tile, times.backward));
  value.set("forward", std::move(forward)).set("backward", std::move(backward));
  return value;
}

/// Members "errors" and "tolerances" {out, lse, dq, dk, dv}; null where nothing was compared.
void set_errors(Json& value, const std::array<OutputCheck, 5>& checks) {
  Json errors, tolerances;
  for (std::size_t i = 0; i < kOutputs.size(); ++i) {
    errors.set(kOutputs[i], checks[i].checked ? Json(checks[i].error) : Json());
    tolerances.set(kOutputs[i], checks[i].checked ? Json(checks[i].tolerance) : Json());
  }
  value.set("errors", std::move(errors)).set("tolerances", std::move(tolerances));
}

/// What runs the calls instead of this process's cores: virtual ranks, a GPU, or neither.
struct Engines {
  std::optional<RankEngine> ranks;
  std::optional<Sm90Engine> device;

  /// Of the last call, which took `measured` from outside.
  [[nodiscard]] double milliseconds(double measured) const {
    return ranks ? ranks->milliseconds() : device ? device->milliseconds() : measured;
  }
};

Json report_json(const Options& options, const NamedMask& named, const TileMap& map, const Problem& problem,
                 const Verification& verification, const Times& times, const Engines& engines) {
  Json::Array failures;
  for (const std::string& failure : verification.failures) failures.emplace_back(failure);
  Json value;
  value.set("passed", verification.passed()).set("check", options.check).set("sampled", verification.sampled);
  value.set("coverage", verification.coverage).set("failures", std::move(failures));
  set_errors(value, verification.outputs);
  Json probe;
  set_errors(probe, verification.probe);
  value.set("probe", std::move(probe));
  value.set("mask", named.name).set("mask_heads", named.mask.shape().heads);
  value.set("digest", fmt::format("{:016x}", named.mask.digest()));
  value.set("shape", shape_json(problem.shape, problem.q.dtype()));
  value.set("backend", options.attention.backend).set("threads", std::int64_t{core::thread_count(problem.threads)});
  value.set("seed", static_cast<std::int64_t>(options.request.seed));
  set_tiles(value, named.mask, map);
  value.set("visible_cells", named.mask.visible_cells());
  value.set("time_ms", times_json(times)).set("tflops", tflops_json(work_of(problem.shape, named.mask), times));
  if (engines.ranks) value.set("context_parallel", ranks_json(*engines.ranks));
  if (engines.device) value.set("sm90", sm90_json(engines.device->report()));
  return value;
}

std::string pass_text(double operations_element, double operations_tile, double milliseconds) {
  return fmt::format("{}, {:.3g} TFLOP/s element-exact, {:.3g} in the tile convention", duration(milliseconds),
                     tera(operations_element, milliseconds), tera(operations_tile, milliseconds));
}

void print_report(const NamedMask& named, const TileMap& map, const Problem& problem, const Verification& verification,
                  const Times& times, const Engines& engines) {
  const Work work = work_of(problem.shape, named.mask);
  Sheet sheet;
  sheet.add("mask", named.name);
  sheet.add("attention", shape_text(problem.shape, problem.q.dtype()));
  add_tiles(sheet, named.mask, map);
  sheet.add("skipped", fmt::format("{} tiles of work never touched, classified once in {}",
                                   grouped(map.counts().masked), duration(times.classify)));
  if (engines.device) {
    sheet.add("device", device_text(engines.device->report()));
    sheet.add("kernel tiles", kernel_tiles_text(engines.device->report()));
  } else {
    sheet.add("threads", fmt::format("{}", core::thread_count(problem.threads)));
  }
  sheet.add("forward", pass_text(work.element, work.tile, times.forward));
  sheet.add("backward", pass_text(kBackwardFactor * work.element, kBackwardFactor * work.tile, times.backward));
  fmt::print("{}\n", sheet.text());
  if (engines.ranks) fmt::print("{}\n", ranks_text(*engines.ranks));
  Table table({"output", "float64 error", "tolerance", "", "probe error", "tolerance", ""});
  bool any = false;
  for (std::size_t i = 0; i < kOutputs.size(); ++i) {
    std::vector<std::string> row{kOutputs[i]};
    for (const OutputCheck& check : {verification.outputs[i], verification.probe[i]}) {
      any = any || check.checked;
      row.push_back(check.checked ? fmt::format("{:.3e}", check.error) : "-");
      row.push_back(check.checked ? fmt::format("{:.3e}", check.tolerance) : "-");
      row.emplace_back(!check.checked ? "" : check.error <= check.tolerance ? "ok" : "WRONG");
    }
    table.add(std::move(row));
  }
  if (any) fmt::print("{}\n", table.text());
  fmt::print("checked   {}\n", verification.coverage);
  for (const std::string& failure : verification.failures) fmt::print("WRONG     {}\n", failure);
  fmt::print("{} (verified in {})\n", verification.passed() ? "PASSED" : "FAILED", duration(times.verify));
}

/// The check of --check contamination: what every row saw, by codes in V.
void verify_contamination(RankEngine& engine, const NamedMask& named, const Problem& problem,
                          Verification& verification) {
  const auto findings = engine.contamination(problem.shape, documents_of(named));
  verification.failures.insert(verification.failures.end(), findings.begin(), findings.end());
  verification.coverage += "; what every row of every head saw, by document, chunk and call";
}

Verification verify(Problem& problem, const Options& options) {
  Verification verification;
  verify_everywhere(problem, verification);
  std::string coverage = "all outputs written, finite, zero where nothing is seen";
  if (options.check == "oracle") {
    const Sample sample = choose_sample(problem.shape, *problem.mask.mask, kOracleBudget, options.request.seed);
    verify_oracle(problem, sample, verification);
    coverage += "; float64 oracle on " + verification.coverage;
  }
  if (options.check == "oracle" || options.check == "probe") {
    verify_probe(problem, options.request.seed + 1, verification);
    coverage += "; probes with uniform weights in every row and column of every head";
  }
  verification.coverage = std::move(coverage);
  return verification;
}

/// The engine of --ranks; none for one device.
std::optional<RankEngine> make_ranks(const Options& options, const NamedMask& named) {
  RanksOptions ranks = options.ranks;
  constexpr std::int64_t kContaminationRanks = 4;  // one device has nothing to mix up
  if (ranks.ranks == 0 && options.check == "contamination") ranks.ranks = kContaminationRanks;
  if (ranks.ranks == 0) return std::nullopt;
  return RankEngine(named.mask, plan_of(ranks, named), std::chrono::seconds(ranks.deadline));
}

/// Makes what runs the calls.
Engines make_engines(const Options& options, const NamedMask& named, Problem& problem, Times& times) {
  if (!on_sm90(options.attention)) return {make_ranks(options, named), std::nullopt};
  Sm90Engine device(problem.shape, problem.q.dtype());
  device.set_mask(named.mask);
  const Sm90Report report = device.report();
  times.classify = report.forward_map_ms + report.backward_map_ms;
  problem.weights = problem.q.dtype();  // tensor cores multiply P and dS in the tensors' type
  return {std::nullopt, std::move(device)};
}

void use(Engines& engines, Problem& problem) {
  if (engines.ranks) {
    problem.forward_engine = [&engines](const ForwardArguments& a) { engines.ranks->forward(a); };
    problem.backward_engine = [&engines](const BackwardArguments& a) { engines.ranks->backward(a); };
  }
  if (engines.device) {
    problem.forward_engine = [&engines](const ForwardArguments& a) { engines.device->forward(a); };
    problem.backward_engine = [&engines](const BackwardArguments& a) { engines.device->backward(a); };
  }
}

/// Before any work. Virtual ranks are threads of the CPU backend.
void check_options(const Options& options) {
  const bool ranks = options.ranks.ranks > 0 || options.check == "contamination";
  core::check(!on_sm90(options.attention) || !ranks,
              "{} with --backend sm90: virtual ranks run on the CPU; leave one of the two out",
              options.ranks.ranks > 0 ? "--ranks" : "--check contamination");
  check_backend(options.attention);
  check_not_over(options.ranks.plan, "--plan", {"--json", options.json});
  check_writable(options.json);
  if (!on_sm90(options.attention)) return;
  static_cast<void>(shape_of(options.attention, check_request(options.request, kDefaultWorkload)));
  require_sm90();
}

int execute(const Options& options) {
  check_options(options);
  const NamedMask named = build(options.request, kDefaultWorkload);
  const AttentionShape shape = shape_of(options.attention, named.mask.shape());
  const DType dtype = parse_dtype(options.attention.dtype);
  Times times;
  const TileMap map = [&] {
    const Stopwatch watch;
    TileMap built = TileMap::build(named.mask, options.tile.shape(), options.tile.rule());
    times.classify = watch.milliseconds();
    return built;
  }();
  log("run", fmt::format("{}: {}", named.name, shape_text(shape, dtype)));
  Problem problem(shape, dtype, named.mask, map, options.attention.threads, options.request.seed);
  Engines engines = make_engines(options, named, problem, times);
  use(engines, problem);
  {
    Progress progress("forward and backward", 2);
    times.forward = engines.milliseconds(problem.run_forward());
    progress.advance();
    times.backward = engines.milliseconds(problem.run_backward());
  }
  log("run", fmt::format("forward {}, backward {}", duration(times.forward), duration(times.backward)));
  const Stopwatch watch;
  Verification verification = verify(problem, options);
  if (options.check == "contamination") verify_contamination(*engines.ranks, named, problem, verification);
  if (engines.ranks) {
    const auto failures = engines.ranks->byte_failures();
    verification.failures.insert(verification.failures.end(), failures.begin(), failures.end());
  }
  times.verify = watch.milliseconds();
  if (!options.json.empty()) {
    write_json(options.json, report_json(options, named, map, problem, verification, times, engines));
  }
  if (options.json != "-") print_report(named, map, problem, verification, times, engines);
  return verification.passed() ? 0 : kCheckFailed;
}

}  // namespace

void add_run(CLI::App& parent, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      parent.add_subcommand("run", "The main job: masked attention, forward and backward, verified against float64");
  command->footer(
      "Examples:\n"
      "  flashmask run                                       8,192 packed tokens from the shipped histogram\n"
      "  flashmask run --mask sliding_window --rows 2048 --heads 4 --head-dim 64 --dtype f32\n"
      "  flashmask run --workload grpo:512,8,256 --rows 16384 --json -\n"
      "  flashmask run --ranks 8 --nodes 2                   the same on 8 virtual ranks: gather, attention, reduce\n"
      "  flashmask run --ranks 6 --check contamination       what every row saw, by documents, chunks and calls\n"
      "  flashmask run --backend sm90 --workload pack:32768 --heads 16   on a Hopper GPU, checked in the same way\n"
      "  flashmask run --mask random_eviction --heads 8:2 --mask-heads 2 --check probe\n"
      "Exit code 0 only when every check passed, 1 when one failed.");
  add_mask_options(*command, options->request);
  add_attention_options(*command, options->attention);
  add_tile_options(*command, options->tile);
  add_ranks_options(*command, options->ranks);
  const std::string group = "What to check and to print";
  command
      ->add_option(
          "--check", options->check,
          "oracle: float64 and the probes; probe: the probes alone (docs/command.md); contamination: what every row "
          "saw, by codes in V through plan, gather and attention; none: only that all is written")
      ->check(CLI::IsMember({"oracle", "probe", "contamination", "none"}))
      ->capture_default_str()
      ->group(group);
  command->add_option("--json", options->json, "Write the report as JSON to this file; - is standard output")
      ->expected(0, 1)
      ->default_str("-")
      ->group(group);
  command->callback([options, command, &exit_code] {
    check_ranks_options(*command, options->ranks, options->ranks.ranks > 0 || options->check == "contamination");
    exit_code = execute(*options);
  });
}

}  // namespace flashmask::app
