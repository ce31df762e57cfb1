// `flashmask bench balance`: the published ablation and the production targets, measured on seeded instances.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <ctime>
#include <limits>
#include <memory>
#include <numeric>

#include "balance/families.hpp"
#include "balance/hierarchy.hpp"
#include "balance/starts.hpp"
#include "balance/traffic.hpp"
#include "balance/traffic_bound.hpp"
#include "bench_record.hpp"
#include "command.hpp"
#include "given.hpp"
#include "report.hpp"

namespace flashmask::app {
namespace {

using balancing::Family;
using balancing::Instance;
using balancing::Solution;
using balancing::SolveOptions;

struct Options {
  std::string table = "production";
  std::uint64_t seed = 1;
  int repeats = 5;
};

/// Mean and largest of what was added.
struct Figures {
  double sum = 0, most = 0;
  int count = 0;
  void add(double value) {
    sum += value;
    most = std::max(most, value);
    ++count;
  }
  [[nodiscard]] double mean() const { return count == 0 ? 0 : sum / count; }
};

/// How far a stage ended above the optimum, over instances.
struct Stage {
  Figures gap;
  int suboptimal = 0;
  void add(std::int64_t peak, std::int64_t optimum) {
    suboptimal += peak != optimum;
    gap.add(static_cast<double>(peak - optimum) / static_cast<double>(optimum));
  }
  [[nodiscard]] std::string share() const {
    return fmt::format("{:.1f}%", 100.0 * suboptimal / std::max(1, gap.count));
  }
  [[nodiscard]] std::string gaps() const { return fmt::format("{:.2f}% / {:.2f}%", gap.mean() * 100, gap.most * 100); }
};

struct AblationRow {
  std::string_view name;
  std::int64_t chunks, ranks, most;
  int instances;
  bool causal;
};

constexpr AblationRow kAblation[] = {{"uniform (64, 16, 4, 10^3)", 64, 16, 1000, 200, false},
                                     {"uniform (64, 16, 4, 10^4)", 64, 16, 10'000, 200, false},
                                     {"causal (64, 8, 8, 200)", 64, 8, 200, 200, true},
                                     {"uniform (128, 16, 8, 200)", 128, 16, 200, 100, false}};

void ablation(const Options& options) {
  Table table({"(N, P, kappa, w)", "LPT sub-opt.", "gap mean / max", "+P2", "gap mean / max", "+P2+P3",
               "gap mean / max", "+exact", "proved by bound / search"});
  for (const AblationRow& row : kAblation) {
    Stage lpt, pairs, triples, exact;
    int by_bound = 0, by_search = 0, open = 0;
    Progress progress(row.name, row.instances);
    for (int i = 0; i < row.instances; ++i, progress.advance()) {
      const std::uint64_t seed = options.seed * 1000 + static_cast<std::uint64_t>(i);
      const Instance in = balancing::make_instance(row.causal ? balancing::causal_loads(row.chunks, row.most, seed)
                                                              : balancing::uniform_loads(row.chunks, row.most, seed),
                                                   balancing::chunk_counts(row.chunks, row.ranks), {});
      const auto peak = [&](const balancing::State& state) { return in.original(state.peak(in)); };
      const Solution best = balancing::solve(in, {.proof_steps = 20'000'000});
      if (best.bound.value != best.state.peak(in)) {
        ++open;
        continue;
      }
      (best.bound.by == BoundBy::search ? by_search : by_bound) += 1;
      const std::int64_t optimum = peak(best.state);
      lpt.add(peak(balancing::lpt(in)), optimum);
      pairs.add(peak(balancing::solve(in, {.triples = false}).state), optimum);
      triples.add(peak(balancing::solve(in, {}).state), optimum);
      exact.add(optimum, optimum);
    }
    table.add({std::string(row.name), lpt.share(), lpt.gaps(), pairs.share(), pairs.gaps(), triples.share(),
               triples.gaps(), exact.share(),
               fmt::format("{} / {}{}", by_bound, by_search, open == 0 ? "" : fmt::format(", {} open", open))});
  }
  fmt::print(
      "{}\nOptimum: the peak equals a lower bound (average, pigeonhole, covering, incompatible, residue), or a\n"
      "complete search refuted every smaller peak. Gap: (peak - optimum) / optimum, sub-optimal ones included.\n",
      table.text());
}

/// Processor time of the shortest of several runs in milliseconds; a busy machine disturbs it less than the wall clock.
template <typename Call>
double best_of(int repeats, Call call) {
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < repeats; ++i) {
    const std::clock_t start = std::clock();
    call();
    least = std::min(least, 1000.0 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return least;
}

/// Loads straight from the solver's door: make_instance and solve, as `balance` does.
void add_loads_row(Table& table, const std::string& name, const std::string& target,
                   const std::vector<Workload>& instances, int repeats) {
  Figures gap, time;
  int proven = 0, within = 0;
  for (const Workload& w : instances) {
    Instance in;
    Solution best;
    time.add(best_of(repeats, [&] {
      in = balancing::make_instance(w.loads, balancing::chunk_counts(w.chunks(), w.ranks), {});
      best = balancing::solve(in, {.proof_steps = BalanceOptions{}.proof_steps});
    }));
    const double peak = static_cast<double>(in.original(best.state.peak(in)));
    const double bound = static_cast<double>(in.original(best.bound.value));
    gap.add(peak / bound - 1);
    proven += peak == bound;
    within += peak <= 1.001 * bound;
  }
  const int n = static_cast<int>(instances.size());
  table.add({name, target, fmt::format("{}/{}", proven, n), fmt::format("{}/{}", within, n),
             fmt::format("{:.4f}% / {:.4f}%", gap.mean() * 100, gap.most * 100),
             fmt::format("{:.3f} / {:.3f}", time.mean(), time.most)});
}

void add_nodes_row(Table& table, Family family, std::int64_t nodes, std::int64_t columns, const std::string& target,
                   const Options& options, int count) {
  Figures ratio, bound, over, time, fan_out;
  for (int i = 0; i < count; ++i) {
    const Workload w = balancing::family_workload(family, columns, nodes * 8, nodes,
                                                  options.seed * 1000 + static_cast<std::uint64_t>(i));
    const Instance in = balancing::make_instance(w.loads, balancing::chunk_counts(w.chunks(), w.ranks), {});
    Solution flat, best;
    time.add(best_of(options.repeats, [&] {
      flat = balancing::solve(in, {});
      best = flat;
      balancing::improve_traffic(in, w.needs, {.nodes = nodes, .epsilon_millionths = 10'000}, {}, best);
    }));
    const auto report = [&](const balancing::State& state) {
      const auto rank_of = state.rank_of();
      const std::vector<std::int64_t> owner(rank_of.begin(), rank_of.end());
      return balancing::count_traffic(w.needs, owner, w.ranks, nodes, w.columns, w.chunk);
    };
    const auto worst = [](const std::vector<std::int64_t>& by_node) {
      return static_cast<double>(*std::max_element(by_node.begin(), by_node.end()));
    };
    const auto before = report(flat.state), after = report(best.state);
    ratio.add(worst(before.inbound) == 0 ? 0 : worst(after.inbound) / worst(before.inbound));
    const std::int64_t peak = in.original(flat.bound.value);
    const std::int64_t allowed = std::max(in.normalised(peak + peak / 100), best.state.peak(in));
    bound.add(worst(before.inbound) == 0
                  ? 0
                  : static_cast<double>(balancing::inbound_lower_bound(in, w.needs, nodes, allowed)) /
                        worst(before.inbound));
    fan_out.add(worst(after.inbound) == 0 ? 1 : worst(after.outbound) / worst(after.inbound));
    over.add(static_cast<double>(in.original(best.state.peak(in))) /
             static_cast<double>(in.original(best.bound.value)));
  }
  table.add({fmt::format("{} nodes x 8, {}K, {}", nodes, columns >> 10, to_string(family)), target,
             fmt::format("{:.3f} / {:.3f}", ratio.mean(), ratio.most),
             fmt::format("{:.3f} / {:.3f}", bound.mean(), bound.most), fmt::format("{:.4f}", over.most),
             fmt::format("{:.2f}", fan_out.mean()), fmt::format("{:.2f} / {:.2f}", time.mean(), time.most)});
}

void production(const Options& options) {
  const auto seed = [&](int i) { return options.seed * 1000 + static_cast<std::uint64_t>(i); };
  Table loads({"loads", "target", "proven", "<= 0.1%", "gap mean / max", "ms mean / max"});
  for (const std::int64_t ranks : {16, 32, 64, 128}) {
    std::vector<Workload> instances(100);
    for (int i = 0; i < 100; ++i) {
      instances[static_cast<std::size_t>(i)].loads = balancing::uniform_loads(8 * ranks, 10'000, seed(i));
      instances[static_cast<std::size_t>(i)].ranks = ranks;
    }
    add_loads_row(loads, fmt::format("uniform <= 10^4, N = {}", 8 * ranks),
                  ranks == 16    ? "100% proven, 0.3 ms"
                  : ranks == 128 ? "100% proven, 1.5 ms"
                                 : "100% proven",
                  instances, options.repeats);
  }
  for (const std::int64_t chunks : {128, 1024, 4096}) {
    for (const Family family : {Family::causal_document_8k, Family::causal_document_32k, Family::prefix_lm_16k}) {
      std::vector<Workload> instances;
      for (int i = 0; i < 30; ++i) {
        const ColumnMask mask = balancing::family_mask(family, chunks << 10, seed(i));
        Workload w;
        w.loads = chunk_loads(mask, 1024, {.costs = {.partial = 13, .unmasked = 10}});
        w.ranks = chunks / 8;
        instances.push_back(std::move(w));
      }
      add_loads_row(loads, fmt::format("{}, N = {}", to_string(family), chunks),
                    fmt::format("<= 0.1% in 95%, {} ms", chunks == 128    ? "0.2"
                                                         : chunks == 1024 ? "1"
                                                                          : "5"),
                    instances, options.repeats);
    }
  }
  Table nodes({"hierarchy, epsilon 1%", "target", "inbound / flat mean, max", "no plan below mean, max",
               "peak/bound max", "out/in", "ms mean / max"});
  const Family families[] = {Family::causal_document_8k, Family::causal_document_32k, Family::prefix_lm_16k};
  const char* small[] = {"<= 0.25, 6 ms", "<= 0.45, 6 ms", "<= 0.50, 6 ms"};
  const char* large[] = {"<= 0.35, 35 ms", "<= 0.45, 35 ms", "<= 0.30, 35 ms"};
  for (int f = 0; f < 3; ++f) add_nodes_row(nodes, families[f], 2, 128 << 10, small[f], options, 20);
  for (int f = 0; f < 3; ++f) add_nodes_row(nodes, families[f], 16, 1 << 20, large[f], options, 8);
  fmt::print("{}, one thread, processor time, best of {} runs an instance, seed {}\n\n{}\n{}",
             *machine_json().find("cpu")->string(), options.repeats, options.seed, loads.text(), nodes.text());
}

}  // namespace

void add_bench_balance(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("balance", "Tables of the balancer: the published ablation, the targets");
  command->footer(
      "Examples:\n"
      "  flashmask bench balance --table ablation\n"
      "  flashmask bench balance --table production --seed 7");
  command->add_option("--table", options->table, "ablation or production")
      ->check(CLI::IsMember({"ablation", "production"}))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Instances are drawn from seeds 1000 * SEED and up")
      ->check(whole_number(0, 1'000'000'000))
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "Timed runs of an instance")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  command->callback([options, command, &exit_code] {
    if (options->table == "ablation") refuse_given(*command, {"--repeats"}, "--table ablation times nothing");
    options->table == "ablation" ? ablation(*options) : production(*options);
    exit_code = 0;
  });
}

}  // namespace flashmask::app
