// `flashmask simulate`: what a step would take on a described cluster, from the schedules the runtime executes.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <numbers>
#include <random>

#include "attention_options.hpp"
#include "cluster.hpp"
#include "command.hpp"
#include "core/check.hpp"
#include "format/json.hpp"
#include "given.hpp"
#include "mask_request.hpp"
#include "ranks.hpp"
#include "report.hpp"
#include "timeline.hpp"

namespace flashmask::app {
namespace {

using format::Json;
using overlap::StepTimeline;

struct Options {
  MaskRequest request;
  RanksOptions ranks;
  std::string heads = "64:8";
  std::int64_t head_dim = 128;
  std::string cluster;
  std::int64_t communication_sms = -1;
  bool no_overlap = false, no_prune = false, direct = false, compare = false, paper = false;
  std::int64_t draws = 4;
  std::string svg, json;
};

/// Below every table with a column E.
constexpr const char* kEfficiencyText =
    "E = 1 - exposed / communication: 1 where all transfers hide behind attention, 0 where as much time is lost as "
    "the\n"
    "transfers take alone; below 0 a pass loses even more, as launches, sums and waits between ranks come on top.\n";

/// One row of a comparison.
struct Variant {
  const char* name;
  const char* plan;
  overlap::SimulateOptions options;
};

/// The rows of the paper's ablation: one change at a time against a plain dual-chunk layout without overlap.
std::vector<Variant> ablation() {
  using overlap::Overlapping, overlap::Pruning;
  const overlap::ScheduleOptions direct{Routing::direct, Landing::balanced};
  return {{"dual chunk, all-gather", "dual_chunk", {Overlapping::off, Pruning::off, {}}},
          {"+ HCC-IPO balancing", "hcc_ipo", {Overlapping::off, Pruning::off, {}}},
          {"+ mask-aware overlap", "dual_chunk", {Overlapping::on, Pruning::on, {}}},
          {"both, hierarchical routing off", "hcc_ipo", {Overlapping::on, Pruning::on, direct}},
          {"both, without pruning", "hcc_ipo", {Overlapping::on, Pruning::off, {}}},
          {"both", "hcc_ipo", {Overlapping::on, Pruning::on, {}}}};
}

overlap::SimulatedShape shape_of(const Options& options) {
  AttentionShape heads;
  parse_heads(options.heads, heads);
  return {heads.query_heads, heads.kv_heads, options.head_dim, 2, 4};
}

Json pass_json(const overlap::PassTimeline& pass) {
  Json value;
  value.set("time_ms", pass.time * 1e3).set("attention_ms", pass.compute * 1e3);
  value.set("communication_ms", pass.communication * 1e3).set("exposed_ms", pass.exposed() * 1e3);
  value.set("overlap_efficiency", pass.efficiency());
  Json::Array ranks;
  for (const auto& rank : pass.ranks) {
    Json one;
    one.set("attention_ms", rank.compute * 1e3)
        .set("attention_end_ms", rank.attention_end * 1e3)
        .set("end_ms", rank.end * 1e3);
    ranks.push_back(std::move(one));
  }
  value.set("ranks", std::move(ranks));
  return value;
}

Json step_json(const StepTimeline& step) {
  Json value, bytes;
  bytes.set("inside", step.bytes[0]).set("between", step.bytes[1]);
  value.set("step_ms", step.time() * 1e3)
      .set("forward", pass_json(step.forward))
      .set("backward", pass_json(step.backward));
  value.set("bytes", std::move(bytes));
  return value;
}

std::string gibibytes(std::int64_t bytes) {
  return fmt::format("{:.3f}", static_cast<double>(bytes) / (1 << 30));
}

std::vector<std::string> table_row(const std::string& name, const StepTimeline& step, double baseline) {
  return {name,
          fmt::format("{:.3f}", step.forward.time * 1e3),
          fmt::format("{:.3f}", step.backward.time * 1e3),
          fmt::format("{:.3f}", (step.forward.exposed() + step.backward.exposed()) * 1e3),
          fmt::format("{:.2f}", step.forward.efficiency()),
          fmt::format("{:.2f}", step.backward.efficiency()),
          gibibytes(step.bytes[0]),
          gibibytes(step.bytes[1]),
          fmt::format("{:.3f}", step.time() * 1e3),
          fmt::format("{:+.1f}%", 100 * (baseline / step.time() - 1))};
}

Table comparison_table() {
  return Table({"", "forward ms", "backward ms", "exposed ms", "E fwd", "E bwd", "GiB inside", "GiB between", "step ms",
                "speedup"});
}

void print_ranks(const StepTimeline& step) {
  Table table({"rank", "fwd attention ms", "fwd end ms", "bwd attention ms", "bwd attention end ms", "bwd end ms"});
  for (std::size_t r = 0; r < step.forward.ranks.size(); ++r) {
    const auto& f = step.forward.ranks[r];
    const auto& b = step.backward.ranks[r];
    table.add({fmt::format("{}", r), fmt::format("{:.3f}", f.compute * 1e3), fmt::format("{:.3f}", f.end * 1e3),
               fmt::format("{:.3f}", b.compute * 1e3), fmt::format("{:.3f}", b.attention_end * 1e3),
               fmt::format("{:.3f}", b.end * 1e3)});
  }
  fmt::print("{}\n", table.text());
}

/// Log-normal document lengths (mean 48K, sigma 1.3), packed in order, the last one cut; the first packs whose causal
/// document mask hides `sparsity` of all cells, within half a point.
std::vector<std::vector<std::int64_t>> packs_of(double sparsity, std::int64_t rows, std::int64_t count,
                                                std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1.0p-53; };
  constexpr double kSigma = 1.3, kMean = 48.0 * 1024;
  std::vector<std::vector<std::int64_t>> packs;
  while (static_cast<std::int64_t>(packs.size()) < count) {
    std::vector<std::int64_t> lengths;
    double cells = 0;
    for (std::int64_t left = rows; left > 0;) {
      const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
      const double drawn = std::exp(std::log(kMean) - kSigma * kSigma / 2 + kSigma * normal);
      const std::int64_t length = std::clamp<std::int64_t>(std::llround(std::min(drawn, 1e9)), 1, left);
      lengths.push_back(length);
      cells += static_cast<double>(length) * static_cast<double>(length + 1) / 2;
      left -= length;
    }
    const double hidden = 1 - cells / (static_cast<double>(rows) * static_cast<double>(rows));
    if (std::abs(hidden - sparsity) <= 0.005) packs.push_back(std::move(lengths));
  }
  return packs;
}

int run_paper(const Options& options, const NamedCluster& named) {
  constexpr std::int64_t kRows = 131072;
  const auto cluster = tiles_for(named, options.head_dim);
  RanksOptions ranks = options.ranks;
  ranks.chunk = ranks.chunk > 0 ? ranks.chunk : 1024;
  Json::Array settings;
  for (const double sparsity : {0.70, 0.80, 0.86}) {
    const auto packs = packs_of(sparsity, kRows, options.draws, options.request.seed + 1);
    Table table({"", "forward ms", "backward ms", "step ms", "speedup", "peak / average"});
    double baseline = 0;
    Json::Array rows;
    Progress progress("simulating", static_cast<std::int64_t>(6 * packs.size()));
    for (const Variant& variant : ablation()) {
      double forward = 0, backward = 0, imbalance = 0;
      for (const auto& lengths : packs) {
        NamedMask mask;
        mask.mask = masks::causal_document({1, 1, kRows, kRows}, masks::documents_of(lengths));
        ranks.plan = variant.plan;
        const Plan plan = plan_of(ranks, mask);
        const StepTimeline step = overlap::simulate(mask.mask, plan, shape_of(options), cluster, variant.options);
        const auto n = static_cast<double>(packs.size());
        forward += step.forward.time / n, backward += step.backward.time / n, imbalance += plan.imbalance() / n;
        progress.advance();
      }
      const double time = forward + backward;
      if (baseline == 0) baseline = time;
      table.add({variant.name, fmt::format("{:.3f}", forward * 1e3), fmt::format("{:.3f}", backward * 1e3),
                 fmt::format("{:.3f}", time * 1e3), fmt::format("{:+.1f}%", 100 * (baseline / time - 1)),
                 fmt::format("{:.3f}", imbalance)});
      Json row;
      row.set("name", variant.name).set("forward_ms", forward * 1e3).set("backward_ms", backward * 1e3);
      row.set("speedup", baseline / time - 1).set("imbalance", imbalance);
      rows.push_back(std::move(row));
    }
    Json setting;
    setting.set("sparsity", sparsity).set("rows", std::move(rows));
    settings.push_back(std::move(setting));
    if (options.json != "-") {
      fmt::print("{:.0f}% of the cells hidden, mean of {} packs of {} tokens, {}\n{}\n", 100 * sparsity, packs.size(),
                 grouped(kRows), named.name, table.text());
    }
  }
  Json value;
  value.set("cluster", named.name).set("settings", std::move(settings));
  if (!options.json.empty()) write_json(options.json, value);
  return 0;
}

/// The option that writes to standard output, if any; refuses two outputs to one place.
std::string taken_output(const Options& options) {
  return check_outputs({{"--json", options.json}, {"--svg", options.svg}});
}

/// Refuses what was given and would not be used.
void check_use(const CLI::App& command, const Options& options) {
  taken_output(options);
  refuse_given(command, {"--deadline"}, "nothing waits in a simulation");
  check_ranks_options(command, options.ranks, true);
  if (options.ranks.ranks == 0)
    refuse_given(command, {"--nodes"}, "without --ranks the cluster says how many nodes there are");
  if (!options.paper) refuse_given(command, {"--draws"}, "it belongs to --paper");
  if (options.paper) {
    refuse_given(command, {"--mask",       "--workload",   "--import",   "--rows",    "--columns",      "--batch",
                           "--mask-heads", "--window",     "--global",   "--prefix",  "--chunk-length", "--frame",
                           "--left",       "--right",      "--past",     "--buckets", "--plan",         "--svg",
                           "--compare",    "--no-overlap", "--no-prune", "--direct"},
                 "--paper has masks, plans and variants of its own");
  }
  if (options.compare) {
    refuse_given(command, {"--plan", "--no-overlap", "--no-prune", "--direct"}, "--compare runs its own variants");
  }
}

/// A simulated rank is a device of the cluster.
void check_ranks_fit(const RanksOptions& ranks, const NamedCluster& named) {
  core::check(ranks.nodes <= named.nodes, "--nodes {}: cluster {} has {} nodes", ranks.nodes,
              format::escaped(named.name), named.nodes);
  core::check(
      (ranks.ranks + ranks.nodes - 1) / ranks.nodes <= named.gpus_per_node,
      "--ranks {} on --nodes {}: cluster {} has {} nodes of {} devices; take fewer ranks, more nodes or another "
      "--cluster",
      ranks.ranks, ranks.nodes, format::escaped(named.name), named.nodes, named.gpus_per_node);
}

int execute(const CLI::App& command, Options options) {
  check_use(command, options);
  NamedCluster named = options.cluster.empty() ? built_in_cluster() : read_cluster(options.cluster);
  if (options.communication_sms >= 0)
    named.cluster.communication_sms = static_cast<std::int32_t>(options.communication_sms);
  if (options.ranks.ranks == 0) {
    options.ranks.ranks = named.nodes * named.gpus_per_node;
    options.ranks.nodes = named.nodes;
  }
  check_ranks_fit(options.ranks, named);
  if (options.paper) return run_paper(options, named);
  const NamedMask mask = build(options.request, "histogram");
  const auto cluster = tiles_for(named, options.head_dim);
  std::vector<Variant> variants;
  if (options.compare) {
    variants = ablation();
    variants.push_back({"contiguous, overlap", "contiguous", {}});
  } else {
    variants.push_back({"step",
                        options.ranks.plan.c_str(),
                        {options.no_overlap ? overlap::Overlapping::off : overlap::Overlapping::on,
                         options.no_prune ? overlap::Pruning::off : overlap::Pruning::on,
                         {options.direct ? Routing::direct : Routing::hierarchical, Landing::balanced}}});
  }
  Table table = comparison_table();
  Json::Array rows;
  StepTimeline last;
  double baseline = 0;
  for (const Variant& variant : variants) {
    RanksOptions ranks = options.ranks;
    ranks.plan = variant.plan;
    last = overlap::simulate(mask.mask, plan_of(ranks, mask), shape_of(options), cluster, variant.options);
    if (baseline == 0) baseline = last.time();
    table.add(table_row(variant.name, last, baseline));
    Json row = step_json(last);
    row.set("name", variant.name);
    rows.push_back(std::move(row));
  }
  if (!options.svg.empty()) {
    format::write_file(
        options.svg, timeline_svg(last, fmt::format("{} on {} ranks, {}", mask.name, options.ranks.ranks, named.name)));
  }
  Json value;
  value.set("mask", mask.name)
      .set("cluster", named.name)
      .set("ranks", options.ranks.ranks)
      .set("steps", std::move(rows));
  if (!options.json.empty()) write_json(options.json, value);
  if (!taken_output(options).empty()) return 0;
  fmt::print("{} ({} tokens) on {} ranks, {} node(s): {}\n{}{}\n", mask.name, grouped(mask.mask.shape().columns),
             options.ranks.ranks, options.ranks.nodes, named.name, table.text(), kEfficiencyText);
  if (!options.compare) print_ranks(last);
  return 0;
}

}  // namespace

void add_simulate(CLI::App& parent, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = parent.add_subcommand("simulate", "Predict a context-parallel step on a described cluster");
  command->footer(
      "Examples:\n"
      "  flashmask simulate --workload histogram --rows 131072 --compare\n"
      "  flashmask simulate --mask causal --rows 65536 --cluster cluster.json --svg step.svg\n"
      "  flashmask simulate --paper                          the ablation of the paper (docs/overlap.md)");
  add_mask_options(*command, options->request);
  add_ranks_options(*command, options->ranks);
  const std::string group = "What is simulated";
  command->add_option("--heads", options->heads, "Query heads : KV heads")->capture_default_str()->group(group);
  command->add_option("--head-dim", options->head_dim, "Head dimension")
      ->check(whole_number(1, 256))
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--cluster", options->cluster, "Cluster file (JSON, docs/overlap.md); default: two nodes of 8 H100")
      ->group(group);
  command
      ->add_option("--communication-sms", options->communication_sms,
                   "SMs given to communication, instead of the cluster's")
      ->check(whole_number(0, 4095))
      ->group(group);
  command->add_flag("--no-overlap", options->no_overlap, "Gather, then attention, then reduce")->group(group);
  command->add_flag("--no-prune", options->no_prune, "Every chunk goes to every rank")->group(group);
  command->add_flag("--direct", options->direct, "Chunks cross to every rank that needs them, not once to the node")
      ->group(group);
  command->add_flag("--compare", options->compare, "Plan kinds, overlap, pruning and hierarchy side by side")
      ->group(group);
  command
      ->add_flag("--paper", options->paper,
                 "The paper's ablation: 128K tokens, document masks of 70, 80 and 86% sparsity")
      ->group(group);
  command->add_option("--draws", options->draws, "--paper: packs per sparsity")
      ->check(whole_number(1, 100))
      ->capture_default_str()
      ->group(group);
  command->add_option("--svg", options->svg, "Draw the (last) timeline into this file; - is standard output")
      ->group(group);
  command->add_option("--json", options->json, "Write the result as JSON to this file; - is standard output")
      ->expected(0, 1)
      ->default_str("-")
      ->group(group);
  command->callback([options, command, &exit_code] { exit_code = execute(*command, *options); });
}

}  // namespace flashmask::app
