#include "plan_request.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "balance/instance.hpp"
#include "core/check.hpp"
#include "format/fields.hpp"
#include "format/json.hpp"
#include "format/plan_json.hpp"
#include "given.hpp"
#include "ranks.hpp"

namespace flashmask::app {
namespace {

using core::check;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// "MxN".
TileShape parse_tile(const std::string& text) {
  const std::size_t cross = text.find('x');
  const auto m = decimal(text.substr(0, cross));
  const auto n = cross == std::string::npos ? std::nullopt : decimal(text.substr(cross + 1));
  check(m && n && *m >= 1 && *n >= 1 && *m <= 65536 && *n <= 65536,
        "--tile {}: expected ROWSxCOLUMNS with both in [1, 65536], e.g. 128x128", text);
  return {static_cast<std::int32_t>(*m), static_cast<std::int32_t>(*n)};
}

}  // namespace

std::vector<std::int64_t> common_documents(const NamedMask& named) {
  std::vector<std::int64_t> lengths;
  if (!named.workload || named.workload->batch.empty()) return lengths;
  for (const auto& document : named.workload->batch.front().documents) lengths.push_back(document.length);
  for (const auto& row : named.workload->batch) {
    bool same = row.documents.size() == lengths.size() && row.padding == 0;
    for (std::size_t d = 0; same && d < lengths.size(); ++d) same = row.documents[d].length == lengths[d];
    if (!same) return {};
  }
  return lengths;
}

std::vector<WeightedMask> PlanMasks::weighted() const {
  std::vector<WeightedMask> out;
  for (std::size_t m = 0; m < masks.size(); ++m) out.push_back({&masks[m].mask, weights[m]});
  return out;
}

void add_plan_options(CLI::App& command, PlanRequest& request) {
  add_mask_options(command, request.mask);
  const std::string group = "What to share out";
  command.add_option("--loads", request.loads, "Bare chunk loads instead of a mask, e.g. 10,9,9,7")->group(group);
  command
      .add_option(
          "--layers", request.layers,
          "Masks and layer counts that one plan serves, e.g. causal_document:12,sliding_window:36; each is laid "
          "over the workload")
      ->group(group);
  command.add_option("--ranks", request.ranks, "Ranks")
      ->check(whole_number(1, kMostRanks))
      ->capture_default_str()
      ->group(group);
  command.add_option("--nodes", request.nodes, "Nodes; rank r lives on node r * nodes / ranks")
      ->check(whole_number(1, kMostRanks))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--chunk", request.chunk, "Tokens per chunk; default: eight chunks a rank, a multiple of 64 tokens")
      ->check(whole_number(1, kLongestChunk))
      ->group(group);
  command.add_option("--speeds", request.speeds, "Relative speed of every rank, e.g. 100,100,90,100")->group(group);
  const std::string costs = "What a chunk costs";
  command.add_option("--unit", request.unit, "cells (visible cells) or tiles (tile costs in thousandths)")
      ->check(CLI::IsMember({"cells", "tiles"}))
      ->capture_default_str()
      ->group(costs);
  command.add_option("--tile", request.tile, "Planning tile, ROWSxCOLUMNS")->capture_default_str()->group(costs);
  command.add_option("--costs", request.costs, "Forward cost of a tile: partial,unmasked (default 1080,1000)")
      ->group(costs);
  command.add_option("--calibration", request.calibration, "A calibration file with the costs of both directions")
      ->group(costs);
  command.add_option("--directions", request.directions, "forward, backward or both")
      ->check(CLI::IsMember({"forward", "backward", "both"}))
      ->capture_default_str()
      ->group(costs);
  const std::string search = "How to plan";
  command.add_option("--kind", request.kind, "hcc_ipo, contiguous, dual_chunk, per_document_dual_chunk or lpt")
      ->check(one_of_kinds())
      ->capture_default_str()
      ->group(search);
  command
      .add_option("--epsilon", request.epsilon,
                  "Share of the peak that may be spent on less traffic between nodes, in millionths")
      ->check(share_of_one())
      ->check(whole_millionths())
      ->capture_default_str()
      ->group(search);
  command.add_option("--search-seed", request.search_seed, "Seed of the search")
      ->check(whole_number(0, kMost))
      ->capture_default_str()
      ->group(search);
  command.add_option("--steps", request.steps, "Effort; 0 chooses by size")
      ->check(whole_number(0, kMost))
      ->capture_default_str()
      ->group(search);
  command.add_option("--proof-steps", request.proof_steps, "Effort of complete searches; 0 proves nothing by search")
      ->check(whole_number(0, kMost))
      ->group(search);
  command
      .add_option(
          "--time-budget", request.time_budget_ms,
          "Milliseconds until the plan is there, not below those of reading the input (20 for 65,536 chunks of a mask, "
          "docs/balance.md); the plan then depends on the machine: compute it once and hand it on")
      ->check(whole_number(1, 86'400'000))
      ->group(search);
}

namespace {

/// What bare loads have no use for.
void check_loads_alone(const CLI::App& command) {
  refuse_given(command,
               {"--mask",       "--workload", "--import",  "--layers",   "--rows",         "--columns", "--batch",
                "--mask-heads", "--seed",     "--chunk",   "--unit",     "--tile",         "--costs",   "--calibration",
                "--directions", "--window",   "--global",  "--prefix",   "--chunk-length", "--frame",   "--left",
                "--right",      "--past",     "--buckets", "--kv-heads", "--head-dim",     "--dtype"},
               "--loads stands alone, without masks and their costs");
}

}  // namespace

PlanMasks plan_masks(const PlanRequest& request) {
  const CLI::App& command = *request.mask.command;
  PlanMasks out;
  if (request.loads) {
    check_loads_alone(command);
    return out;
  }
  if (request.unit == "cells") {
    refuse_given(command, {"--tile", "--costs", "--calibration", "--directions"},
                 "--unit cells counts cells, not tiles");
  }
  if (request.directions == "backward")
    refuse_given(command, {"--costs"}, "it is of the forward, and --directions backward leaves that out");
  if (!given(command, "--layers")) {
    out.masks.push_back(build(request.mask, "histogram"));
    out.weights.push_back(1);
    return out;
  }
  refuse_given(command, {"--mask", "--import"}, fmt::format("--layers {} names the masks", request.layers));
  MaskRequest one = request.mask;
  for (const std::string& layer : entries("--layers", request.layers)) {
    const std::size_t colon = layer.rfind(':');
    const auto count = colon == std::string::npos ? std::optional<std::int64_t>(1) : decimal(layer.substr(colon + 1));
    check(count && *count >= 1 && *count <= kMostLayers,
          "--layers {}: entry {}, {}: the count behind the colon must be a whole number from 1 to {}, e.g. causal:12",
          request.layers, out.weights.size() + 1, layer, kMostLayers);
    check(colon != 0, "--layers {}: entry {}, {}: the mask's name is missing before the colon, e.g. causal:12",
          request.layers, out.weights.size() + 1, layer);
    one.served.push_back(layer.substr(0, colon));
    out.weights.push_back(*count);
  }
  for (const std::string& name : one.served) {
    one.mask = name;
    out.masks.push_back(build(one, "histogram"));
  }
  return out;
}

WorkloadOptions workload_options(const PlanRequest& request, const PlanMasks& masks) {
  WorkloadOptions options;
  const std::int64_t columns = masks.masks.empty() ? 0 : masks.masks.front().mask.shape().columns;
  options.chunk = request.chunk.value_or(default_chunk(columns, request.ranks));
  options.ranks = request.ranks;
  options.nodes = request.nodes;
  options.unit = request.unit == "cells" ? WorkUnit::cells : WorkUnit::tiles;
  options.tile_shape = parse_tile(request.tile);
  if (!request.calibration.empty()) {
    options.costs = format::parse_calibration(read_given("--calibration", request.calibration), request.calibration);
  }
  if (!request.costs.empty()) {
    const auto costs = whole_numbers("--costs", request.costs, 0, kMost);
    check(costs.size() == 2, "--costs {}: expected two numbers, partial,unmasked", request.costs);
    options.costs.forward = {.partial = costs[0], .unmasked = costs[1]};
  }
  options.forward_weight = request.directions == "backward" ? 0 : 1;
  options.backward_weight = request.directions == "forward" ? 0 : 1;
  return options;
}

namespace {

/// The loads of --loads: not negative, with a sum the planner takes.
std::vector<std::int64_t> bare_loads(const std::string& text) {
  std::vector<std::int64_t> loads =
      whole_numbers("--loads", text, 0, kMostLoad, "all loads together may be as much; use a coarser unit");
  std::int64_t sum = 0;
  for (std::size_t c = 0; c < loads.size(); ++c) {
    check(
        loads[c] <= kMostLoad - sum,
        "--loads: entry {}, {}, is too much: all loads together may be 2^62 = {}, and those before it sum to {}; use a "
        "coarser unit",
        c + 1, loads[c], kMostLoad, sum);
    sum += loads[c];
  }
  return loads;
}

/// What made the loads of masks large, as it was given.
std::string load_option(const PlanRequest& request) {
  if (!request.costs.empty()) return "--costs " + request.costs;
  if (!request.calibration.empty()) return "--calibration " + request.calibration;
  return request.layers.empty() ? "--unit " + request.unit : "--layers " + request.layers;
}

/// Refuses loads whose sum the planner does not take, by the options at fault; its own words are of fields.
void check_sum(const Workload& workload, const PlanRequest& request) {
  std::int64_t sum = 0;
  for (std::size_t c = 0; c < workload.loads.size(); ++c) {
    check(workload.loads[c] <= kMostLoad - sum,
          "{}: the loads of the chunks sum to more than 2^62 = {} at chunk {}; use smaller costs or fewer layers",
          load_option(request), kMostLoad, c);
    sum += workload.loads[c];
  }
  if (balancing::sum_fits(sum, workload.speeds)) return;
  const auto [slowest, fastest] = std::minmax_element(workload.speeds.begin(), workload.speeds.end());
  core::fail(ErrorCode::invalid_argument,
             "--speeds {}: the loads ({}) sum to {}, and that times fastest / slowest = {} / {} exceeds 2^62 = {}; use "
             "a coarser unit of load, or speeds closer together",
             request.speeds, request.loads ? std::string("--loads") : load_option(request), sum, *fastest, *slowest,
             kMostLoad);
}

/// The speeds of --speeds, one a rank.
std::vector<std::int64_t> rank_speeds(const PlanRequest& request) {
  std::vector<std::int64_t> speeds = whole_numbers("--speeds", request.speeds, 1, kMostSpeed);
  check(static_cast<std::int64_t>(speeds.size()) == request.ranks, "--speeds: {} entries for --ranks {}; give one each",
        speeds.size(), request.ranks);
  return speeds;
}

}  // namespace

Workload plan_workload(const PlanRequest& request, const PlanMasks& masks) {
  check(request.nodes <= request.ranks, "--nodes {}: allowed are 1 to the number of ranks, {}", request.nodes,
        request.ranks);
  Workload workload;
  if (request.loads) {
    workload.loads = bare_loads(*request.loads);
    workload.ranks = request.ranks;
    workload.nodes = request.nodes;
  } else {
    const WorkloadOptions options = workload_options(request, masks);
    const MaskShape& shape = masks.masks.front().mask.shape();
    check(shape.rows == shape.columns, "the mask has {} rows and {} columns: a plan needs as many of both", shape.rows,
          shape.columns);
    check_chunks(shape.columns, options.chunk, shape.batch);
    workload = format::naming(load_option(request), [&] { return make_workload(masks.weighted(), options); });
    workload.documents = common_documents(masks.masks.front());
  }
  if (given(*request.mask.command, "--speeds")) workload.speeds = rank_speeds(request);
  check_sum(workload, request);
  check(plan_kind(request.kind) != PlanKind::per_document_dual_chunk || !workload.documents.empty(), "--kind {}: {}",
        request.kind, kNeedsDocuments);
  return workload;
}

BalanceOptions balance_options(const PlanRequest& request) {
  BalanceOptions options;
  options.kind = plan_kind(request.kind);
  options.epsilon_millionths = std::llround(request.epsilon * 1e6);
  options.seed = request.search_seed;
  options.steps = request.steps;
  if (request.proof_steps) options.proof_steps = *request.proof_steps;
  if (request.time_budget_ms) options.time_budget = std::chrono::milliseconds(*request.time_budget_ms);
  return options;
}

}  // namespace flashmask::app
