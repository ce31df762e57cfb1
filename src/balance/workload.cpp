// From masks to loads and need sets; what a workload must satisfy.
#include <algorithm>
#include <tuple>
#include <utility>

#include "balance/instance.hpp"
#include "core/check.hpp"
#include "flashmask/balance.hpp"

namespace flashmask {
namespace {

using core::check;

/// loads += weight * more, refused where it leaves int64.
void accumulate(std::vector<std::int64_t>& loads, const std::vector<std::int64_t>& more, std::int64_t weight) {
  for (std::size_t c = 0; c < loads.size(); ++c) {
    const balancing::Int128 sum = loads[c] + balancing::Int128{weight} * more[c];
    check(sum <= kMostLoad, "the load of chunk {} exceeds 2^62; use smaller weights or costs, or smaller chunks", c);
    loads[c] = static_cast<std::int64_t>(sum);
  }
}

}  // namespace

NeedSets::NeedSets(NeedRuns matrix, std::int64_t layers) : weight(layers) {
  check(matrix.row_chunks() == matrix.column_chunks(),
        "need sets want as many row chunks as column chunks, got {} and {}: context parallel masks are square",
        matrix.row_chunks(), matrix.column_chunks());
  matrix_ = std::make_shared<const NeedRuns>(std::move(matrix));
}

TileWork tile_work(const WorkloadOptions& options) {
  TileWork work{options.tile_shape, options.costs, options.forward_weight, options.backward_weight};
  if (work.forward_weight == 0) work.costs.forward = {0, 0};
  if (work.backward_weight == 0) work.costs.backward = {0, 0};
  return work;
}

Workload make_workload(std::span<const WeightedMask> masks, const WorkloadOptions& options) {
  check(!masks.empty(), "masks is empty: a workload needs at least one");
  check(options.unit != WorkUnit::bare, "unit = bare has no meaning for masks: use cells or tiles");
  check(options.forward_weight >= 0 && options.backward_weight >= 0 &&
            options.forward_weight + options.backward_weight > 0,
        "forward_weight = {}, backward_weight = {}: both >= 0 and one positive", options.forward_weight,
        options.backward_weight);
  Workload out;
  out.unit = options.unit;
  if (options.unit == WorkUnit::tiles) out.tile_work = tile_work(options);
  out.ranks = options.ranks;
  out.nodes = options.nodes;
  out.chunk = options.chunk;
  for (std::size_t m = 0; m < masks.size(); ++m) {
    check(masks[m].mask != nullptr, "masks[{}] is null", m);
    check(masks[m].weight >= 1 && masks[m].weight <= kMostLayers, "masks[{}].weight = {}: must be in [1, {}]", m,
          masks[m].weight, kMostLayers);
    const MaskShape& shape = masks[m].mask->shape();
    check(shape.rows == shape.columns, "masks[{}] has {} rows and {} columns: plans need a square mask", m, shape.rows,
          shape.columns);
    check(m == 0 || shape.columns == out.columns, "masks[{}] has {} columns, masks[0] has {}", m, shape.columns,
          out.columns);
    out.columns = shape.columns;
    out.needs.emplace_back(NeedRuns::build(*masks[m].mask, options.chunk), masks[m].weight);
    out.loads.resize(static_cast<std::size_t>(out.needs.back().chunks()), 0);
    if (options.unit == WorkUnit::cells) {
      accumulate(out.loads, chunk_loads(*masks[m].mask, options.chunk, {.unit = LoadUnit::cells}), masks[m].weight);
      continue;
    }
    const auto add = [&](std::int64_t calls, const TileCosts& costs) {
      if (calls == 0) return;
      const LoadOptions load{.unit = LoadUnit::tiles, .tile_shape = options.tile_shape, .costs = costs};
      accumulate(out.loads, chunk_loads(*masks[m].mask, options.chunk, load), masks[m].weight * calls);
    };
    add(options.forward_weight, options.costs.forward);
    add(options.backward_weight, options.costs.backward);
  }
  return out;
}

void balancing::check_tile_work(WorkUnit unit, const std::optional<TileWork>& work) {
  if (!work) return;
  check(unit == WorkUnit::tiles, "tile_work says how tiles were counted, but unit is {}", to_string(unit));
  check(work->tile_shape.block_m >= 1 && work->tile_shape.block_n >= 1,
        "tile_work.tile_shape = {} x {}: must be positive", work->tile_shape.block_m, work->tile_shape.block_n);
  check(work->forward_weight >= 0 && work->backward_weight >= 0 &&
            (work->forward_weight > 0 || work->backward_weight > 0),
        "tile_work.forward_weight = {}, tile_work.backward_weight = {}: both >= 0 and one positive",
        work->forward_weight, work->backward_weight);
  for (const auto& [name, calls, costs] : {std::tuple{"forward", work->forward_weight, work->costs.forward},
                                           std::tuple{"backward", work->backward_weight, work->costs.backward}}) {
    check(costs.partial >= 0 && costs.unmasked >= 0, "tile_work.costs.{} = {}, {}: must not be negative", name,
          costs.partial, costs.unmasked);
    check(calls > 0 || costs == TileCosts{0, 0}, "tile_work.costs.{} = {}, {}: must be 0 of a direction not counted",
          name, costs.partial, costs.unmasked);
  }
}

void validate(const Workload& w) {
  check(w.ranks >= 1 && w.ranks <= kMostRanks, "ranks = {}: must be in [1, {}]", w.ranks, kMostRanks);
  check(w.nodes >= 1 && w.nodes <= w.ranks, "nodes = {}: must be in [1, ranks = {}]", w.nodes, w.ranks);
  check(w.chunks() <= kMostChunks, "{} chunks: at most {}; take a larger chunk", w.chunks(), kMostChunks);
  check(w.chunk >= 1 && w.chunk <= (1 << 30), "chunk = {}: must be in [1, 2^30] tokens", w.chunk);
  check(w.columns >= 0 && (w.columns == 0 || w.columns / w.chunk + (w.columns % w.chunk != 0) == w.chunks()),
        "columns = {} in chunks of {} do not make the {} chunks that have loads", w.columns, w.chunk, w.chunks());
  std::int64_t total = 0;
  for (std::size_t c = 0; c < w.loads.size(); ++c) {
    check(w.loads[c] >= 0, "loads[{}] = {}: a load is not negative", c, w.loads[c]);
    check(w.loads[c] <= kMostLoad - total, "loads sum to more than 2^62 at chunk {}; use a coarser unit", c);
    total += w.loads[c];
  }
  check(w.speeds.empty() || w.speeds.size() == static_cast<std::size_t>(w.ranks),
        "speeds has {} entries for {} ranks; give one each or none", w.speeds.size(), w.ranks);
  for (std::size_t r = 0; r < w.speeds.size(); ++r) {
    check(w.speeds[r] >= 1 && w.speeds[r] <= kMostSpeed, "speeds[{}] = {}: must be in [1, {}]", r, w.speeds[r],
          kMostSpeed);
  }
  balancing::check_sum("loads", total, w.speeds);
  balancing::check_tile_work(w.unit, w.tile_work);
  for (std::size_t m = 0; m < w.needs.size(); ++m) {
    const NeedSets& n = w.needs[m];
    check(n.chunks() == w.chunks(), "needs[{}] speaks of {} chunks, the loads of {}", m, n.chunks(), w.chunks());
    check(n.weight >= 1 && n.weight <= kMostLayers, "needs[{}].weight = {}: must be in [1, {}]", m, n.weight,
          kMostLayers);
  }
}

void validate(const BalanceOptions& o) {
  check(o.epsilon_millionths >= 0 && o.epsilon_millionths <= kMostEpsilonMillionths,
        "epsilon_millionths = {}: must be in [0, {}]", o.epsilon_millionths, kMostEpsilonMillionths);
  check(o.steps >= 0, "steps = {}: must be >= 0 (0 takes the default)", o.steps);
  check(o.proof_steps >= 0, "proof_steps = {}: must be >= 0 (0 proves nothing by search)", o.proof_steps);
  check(!o.time_budget || o.time_budget->count() > 0, "time_budget = {} ns: must be positive",
        o.time_budget ? o.time_budget->count() : 0);
}

}  // namespace flashmask
