// Time of the balancer on one thread: the rows of the production targets (docs/balance.md).
#include <benchmark/benchmark.h>

#include <vector>

#include "balance/families.hpp"
#include "balance/hierarchy.hpp"
#include "balance/solver.hpp"

namespace {

using namespace flashmask;
using balancing::Family;

constexpr std::uint64_t kSeed = 900'000;  // no seed that tuning ever saw
constexpr int kInstances = 16;

/// Solves every instance once an iteration; the reported time is that of one instance.
void solve_all(benchmark::State& state, const std::vector<std::vector<std::int64_t>>& instances, std::int64_t ranks) {
  std::int64_t proven = 0, solved = 0;
  for (auto _ : state) {
    const auto& loads = instances[static_cast<std::size_t>(solved) % instances.size()];
    const auto in =
        balancing::make_instance(loads, balancing::chunk_counts(static_cast<std::int64_t>(loads.size()), ranks), {});
    const auto best = balancing::solve(in, {.proof_steps = BalanceOptions{}.proof_steps});
    proven += best.bound.value == best.state.peak(in);
    ++solved;
    benchmark::DoNotOptimize(best.state.slots.data());
  }
  state.counters["proven"] = static_cast<double>(proven) / static_cast<double>(solved);
}

void uniform(benchmark::State& state) {
  std::vector<std::vector<std::int64_t>> instances;
  for (int i = 0; i < kInstances; ++i) {
    instances.push_back(balancing::uniform_loads(state.range(0), 10'000, kSeed + static_cast<std::uint64_t>(i)));
  }
  solve_all(state, instances, state.range(0) / 8);
}
BENCHMARK(uniform)->Arg(128)->Arg(256)->Arg(512)->Arg(1024)->Arg(4096)->Unit(benchmark::kMicrosecond);

void masks_of_documents(benchmark::State& state) {
  const auto family = static_cast<Family>(state.range(1));
  std::vector<std::vector<std::int64_t>> instances;
  for (int i = 0; i < kInstances; ++i) {
    const ColumnMask mask = balancing::family_mask(family, state.range(0) << 10, kSeed + static_cast<std::uint64_t>(i));
    instances.push_back(chunk_loads(mask, 1024, {.costs = {.partial = 13, .unmasked = 10}}));
  }
  state.SetLabel(std::string(to_string(family)));
  solve_all(state, instances, state.range(0) / 8);
}
BENCHMARK(masks_of_documents)->ArgsProduct({{128, 1024, 4096}, {0, 1, 2}})->Unit(benchmark::kMicrosecond);

void hierarchy(benchmark::State& state) {
  const auto family = static_cast<Family>(state.range(1));
  const std::int64_t nodes = state.range(0), columns = nodes << 16;
  std::vector<Workload> workloads;
  for (int i = 0; i < 8; ++i) {
    workloads.push_back(
        balancing::family_workload(family, columns, nodes * 8, nodes, kSeed + static_cast<std::uint64_t>(i)));
  }
  std::size_t next = 0;
  for (auto _ : state) {
    const Workload& w = workloads[next++ % workloads.size()];
    const auto in = balancing::make_instance(w.loads, balancing::chunk_counts(w.chunks(), w.ranks), {});
    auto best = balancing::solve(in, {});
    balancing::improve_traffic(in, w.needs, {.nodes = nodes, .epsilon_millionths = 10'000}, {}, best);
    benchmark::DoNotOptimize(best.state.slots.data());
  }
  state.SetLabel(std::string(to_string(family)));
}
BENCHMARK(hierarchy)->ArgsProduct({{2, 16}, {0, 1, 2}})->Unit(benchmark::kMicrosecond);

void largest(benchmark::State& state) {
  solve_all(state, {balancing::uniform_loads(65'536, 1'000'000, kSeed)}, 1024);
}
BENCHMARK(largest)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
