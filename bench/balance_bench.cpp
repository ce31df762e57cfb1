// Time of the balancer on one thread: the rows of the production targets (docs/balance.md). An iteration solves every
// instance of its row once, 16 of loads and 8 with nodes, so that no run averages some of them only; `each` is the
// processor time of one. Usage: balance_bench [--seed N] [options of Google Benchmark]; instance i of a row is drawn
// from seed N + i.
#include <benchmark/benchmark.h>

#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "balance/families.hpp"
#include "balance/hierarchy.hpp"
#include "balance/solver.hpp"

namespace {

using namespace flashmask;
using balancing::Family;

constexpr int kInstances = 16;
constexpr int kInstancesWithNodes = 8;

std::uint64_t seed = 900'000;

std::uint64_t seed_of(int instance) {
  return seed + static_cast<std::uint64_t>(instance);
}

void count_each(benchmark::State& state, std::size_t instances) {
  state.counters["each"] = benchmark::Counter(
      static_cast<double>(instances), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void solve_all(benchmark::State& state, const std::vector<std::vector<std::int64_t>>& instances, std::int64_t ranks) {
  std::size_t proven = 0;
  for (auto _ : state) {
    proven = 0;
    for (const auto& loads : instances) {
      const auto in =
          balancing::make_instance(loads, balancing::chunk_counts(static_cast<std::int64_t>(loads.size()), ranks), {});
      const auto best = balancing::solve(in, {.proof_steps = BalanceOptions{}.proof_steps});
      proven += best.bound.value == best.state.peak(in);
      benchmark::DoNotOptimize(best.state.slots.data());
    }
  }
  state.counters["proven"] = static_cast<double>(proven) / static_cast<double>(instances.size());
  count_each(state, instances.size());
}

void uniform(benchmark::State& state) {
  std::vector<std::vector<std::int64_t>> instances;
  for (int i = 0; i < kInstances; ++i) {
    instances.push_back(balancing::uniform_loads(state.range(0), 10'000, seed_of(i)));
  }
  solve_all(state, instances, state.range(0) / 8);
}
BENCHMARK(uniform)->Arg(128)->Arg(256)->Arg(512)->Arg(1024)->Arg(4096)->Unit(benchmark::kMicrosecond);

void masks_of_documents(benchmark::State& state) {
  const auto family = static_cast<Family>(state.range(1));
  std::vector<std::vector<std::int64_t>> instances;
  for (int i = 0; i < kInstances; ++i) {
    const ColumnMask mask = balancing::family_mask(family, state.range(0) << 10, seed_of(i));
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
  for (int i = 0; i < kInstancesWithNodes; ++i) {
    workloads.push_back(balancing::family_workload(family, columns, nodes * 8, nodes, seed_of(i)));
  }
  for (auto _ : state) {
    for (const Workload& w : workloads) {
      const auto in = balancing::make_instance(w.loads, balancing::chunk_counts(w.chunks(), w.ranks), {});
      const auto best = balancing::solve_on_nodes(in, w.needs, {.nodes = nodes, .epsilon_millionths = 10'000}, {});
      benchmark::DoNotOptimize(best.state.slots.data());
    }
  }
  count_each(state, workloads.size());
  state.SetLabel(std::string(to_string(family)));
}
BENCHMARK(hierarchy)->ArgsProduct({{2, 16}, {0, 1, 2}})->Unit(benchmark::kMicrosecond);

void largest(benchmark::State& state) {
  solve_all(state, {balancing::uniform_loads(65'536, 1'000'000, seed)}, 1024);
}
BENCHMARK(largest)->Unit(benchmark::kMillisecond);

/// Takes "--seed N" or "--seed=N" out of the arguments; false for what is no seed.
bool take_seed(int& count, char** arguments) {
  constexpr std::string_view option = "--seed";
  int kept = 1;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (!argument.starts_with(option) || (argument.size() > option.size() && argument[option.size()] != '=')) {
      arguments[kept++] = arguments[i];
      continue;
    }
    const bool apart = argument == option;
    const std::string_view text = !apart ? argument.substr(option.size() + 1) : i + 1 < count ? arguments[++i] : "";
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (text.empty() || status != std::errc{} || end != text.data() + text.size()) {
      std::fprintf(stderr, "--seed %s: expected a whole number from 0 to 2^64 - 1\n", std::string(text).c_str());
      return false;
    }
  }
  arguments[count = kept] = nullptr;
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  if (!take_seed(count, arguments)) return 2;
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
