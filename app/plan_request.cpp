#include "plan_request.hpp"

#include <charconv>
#include <chrono>
#include <cmath>

#include "core/check.hpp"
#include "format/json.hpp"
#include "format/plan_json.hpp"

namespace flashmask::app {
namespace {

using core::check;

/// A decimal integer, all of `text`.
std::optional<std::int64_t> integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "MxN".
TileShape parse_tile(const std::string& text) {
  const std::size_t cross = text.find('x');
  const auto m = integer(text.substr(0, cross));
  const auto n = cross == std::string::npos ? std::nullopt : integer(text.substr(cross + 1));
  check(m && n && *m >= 1 && *n >= 1 && *m <= 65536 && *n <= 65536,
        "--tile {}: expected ROWSxCOLUMNS with both in [1, 65536], e.g. 128x128", text);
  return {static_cast<std::int32_t>(*m), static_cast<std::int32_t>(*n)};
}

/// Lengths of the documents where every batch row has the same; empty otherwise.
std::vector<std::int64_t> documents_of(const NamedMask& named) {
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

}  // namespace

std::vector<WeightedMask> PlanMasks::weighted() const {
  std::vector<WeightedMask> out;
  for (std::size_t m = 0; m < masks.size(); ++m) out.push_back({&masks[m].mask, weights[m]});
  return out;
}

void add_plan_options(CLI::App& command, PlanRequest& request) {
  add_mask_options(command, request.mask);
  const std::string group = "What to share out";
  command.add_option("--loads", request.loads, "Bare chunk loads instead of a mask, e.g. 10,9,9,7")
      ->delimiter(',')
      ->group(group);
  command
      .add_option(
          "--layers", request.layers,
          "Masks and layer counts that one plan serves, e.g. causal_document:12,sliding_window:36; each is laid "
          "over the workload")
      ->delimiter(',')
      ->group(group);
  command.add_option("--ranks", request.ranks, "Ranks")->capture_default_str()->group(group);
  command.add_option("--nodes", request.nodes, "Nodes; rank r lives on node r * nodes / ranks")
      ->capture_default_str()
      ->group(group);
  command.add_option("--chunk", request.chunk, "Tokens per chunk")->capture_default_str()->group(group);
  command.add_option("--mask-chunk", request.mask.chunk, "chunked: chunk length of the mask")->group(group);
  command.add_option("--speeds", request.speeds, "Relative speed of every rank, e.g. 100,100,90,100")
      ->delimiter(',')
      ->group(group);
  const std::string costs = "What a chunk costs";
  command.add_option("--unit", request.unit, "cells (visible cells) or tiles (tile costs in thousandths)")
      ->check(CLI::IsMember({"cells", "tiles"}))
      ->capture_default_str()
      ->group(costs);
  command.add_option("--tile", request.tile, "Planning tile, ROWSxCOLUMNS")->capture_default_str()->group(costs);
  command.add_option("--costs", request.costs, "Forward cost of a tile: partial,unmasked (default 1080,1000)")
      ->delimiter(',')
      ->expected(2)
      ->group(costs);
  command.add_option("--calibration", request.calibration, "A calibration file with the costs of both directions")
      ->group(costs);
  command.add_option("--directions", request.directions, "forward, backward or both")
      ->check(CLI::IsMember({"forward", "backward", "both"}))
      ->capture_default_str()
      ->group(costs);
  const std::string search = "How to plan";
  command.add_option("--kind", request.kind, "hcc_ipo, contiguous, dual_chunk, per_document_dual_chunk or lpt")
      ->capture_default_str()
      ->group(search);
  command.add_option("--epsilon", request.epsilon, "Share of the peak that may be spent on less traffic between nodes")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(search);
  command.add_option("--search-seed", request.search_seed, "Seed of the search")->capture_default_str()->group(search);
  command.add_option("--steps", request.steps, "Effort; 0 chooses by size")->capture_default_str()->group(search);
  command.add_option("--proof-steps", request.proof_steps, "Effort of complete searches; 0 proves nothing by search")
      ->group(search);
  command
      .add_option("--time-budget", request.time_budget_ms,
                  "Milliseconds; the plan then depends on the machine: compute it once and hand it on")
      ->group(search);
}

PlanMasks plan_masks(const PlanRequest& request) {
  PlanMasks out;
  if (!request.loads.empty()) {
    check(request.mask.mask.empty() && request.mask.workload.empty() && request.mask.import_file.empty() &&
              request.layers.empty(),
          "--loads stands alone: leave --mask, --workload, --import and --layers out");
    return out;
  }
  if (request.layers.empty()) {
    out.masks.push_back(build(request.mask, "histogram"));
    out.weights.push_back(1);
    return out;
  }
  check(request.mask.mask.empty() && request.mask.import_file.empty(), "--layers names the masks: leave --mask out");
  for (const std::string& layer : request.layers) {
    const std::size_t colon = layer.rfind(':');
    const auto count = colon == std::string::npos ? std::optional<std::int64_t>(1) : integer(layer.substr(colon + 1));
    check(count && *count >= 1 && *count <= 1'000'000, "--layers {}: the count must be in [1, 1000000]", layer);
    MaskRequest one = request.mask;
    one.mask = layer.substr(0, colon);
    out.masks.push_back(build(one, "histogram"));
    out.weights.push_back(*count);
  }
  return out;
}

WorkloadOptions workload_options(const PlanRequest& request) {
  WorkloadOptions options;
  options.chunk = request.chunk;
  options.ranks = request.ranks;
  options.nodes = request.nodes;
  options.unit = request.unit == "cells" ? WorkUnit::cells : WorkUnit::tiles;
  options.tile_shape = parse_tile(request.tile);
  if (!request.calibration.empty()) {
    options.costs = format::parse_calibration(format::read_file(request.calibration), request.calibration);
  }
  if (!request.costs.empty()) options.costs.forward = {.partial = request.costs[0], .unmasked = request.costs[1]};
  options.forward_weight = request.directions == "backward" ? 0 : 1;
  options.backward_weight = request.directions == "forward" ? 0 : 1;
  return options;
}

Workload plan_workload(const PlanRequest& request, const PlanMasks& masks) {
  Workload workload;
  if (masks.masks.empty()) {
    workload.loads = request.loads;
    workload.ranks = request.ranks;
    workload.nodes = request.nodes;
  } else {
    workload = make_workload(masks.weighted(), workload_options(request));
    workload.documents = documents_of(masks.masks.front());
  }
  workload.speeds = request.speeds;
  return workload;
}

BalanceOptions balance_options(const PlanRequest& request) {
  BalanceOptions options;
  options.kind = plan_kind(request.kind);
  options.epsilon_millionths = std::llround(request.epsilon * 1e6);
  options.seed = request.search_seed;
  options.steps = request.steps;
  if (request.proof_steps) options.proof_steps = *request.proof_steps;
  if (request.time_budget_ms) {
    check(*request.time_budget_ms >= 1 && *request.time_budget_ms <= 86'400'000,
          "--time-budget {}: must be in [1, 86400000] ms", *request.time_budget_ms);
    options.time_budget = std::chrono::milliseconds(*request.time_budget_ms);
  }
  return options;
}

}  // namespace flashmask::app
