// `flashmask plan`: chunks to ranks with a certificate, compared, swept, pictured and verified.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "balance/traffic.hpp"
#include "command.hpp"
#include "core/check.hpp"
#include "format/plan_json.hpp"
#include "given.hpp"
#include "plan_picture.hpp"
#include "plan_request.hpp"
#include "plan_verdict.hpp"
#include "problem.hpp"
#include "ranks.hpp"
#include "report.hpp"

namespace flashmask::app {
namespace {

using core::check;

struct Options {
  PlanRequest request;
  std::string json, svg, verify;
  bool compare = false, sweep = false;
  std::string sweep_chunks, sweep_ranks;
  std::int64_t kv_heads = 8, head_dim = 128;
  std::string dtype = "bf16";
  [[nodiscard]] std::int64_t element_bytes() const { return static_cast<std::int64_t>(size_of(parse_dtype(dtype))); }
};

struct Timed {
  Plan plan;
  std::int64_t micros = 0;
};

Timed timed_plan(const Workload& workload, const BalanceOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Plan plan = balance(workload, options);
  const auto taken = std::chrono::steady_clock::now() - start;
  return {std::move(plan), std::chrono::duration_cast<std::chrono::microseconds>(taken).count()};
}

std::string megabytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::int64_t largest(std::span<const std::int64_t> values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

/// Bytes of keys and values that the fullest rank holds.
std::int64_t buffer_bytes(const Plan& plan, const Options& options) {
  return largest(balancing::key_rows(plan.record())) * 2 * options.kv_heads * options.head_dim *
         options.element_bytes();
}

std::string certificate(const Plan& plan) {
  const std::string bound =
      fmt::format("lower bound {} ({})", grouped(plan.lower_bound()), to_string(plan.record().bound_by));
  if (plan.proven_optimal()) return fmt::format("optimal: {}", bound);
  return fmt::format("at most {} above the optimum: {}", percent_up(plan.gap(), 4), bound);
}

std::string sheet(const Timed& timed, const std::string& name, const Options& options) {
  const Plan& plan = timed.plan;
  Sheet out;
  out.add("workload", name);
  const std::int64_t ragged =
      plan.chunks() == 0 ? 0 : plan.chunk_end(plan.chunks() - 1) - plan.chunk_begin(plan.chunks() - 1);
  const std::int64_t fewest = plan.chunks() / plan.ranks(), more = plan.chunks() % plan.ranks();
  const bool chosen = !options.request.chunk && !options.request.loads;
  out.add("chunks", fmt::format("{} of {} tokens{}{}; {}", plan.chunks(), plan.chunk(),
                                chosen ? " (about eight a rank, as --chunk is not given)" : "",
                                ragged == plan.chunk() ? "" : fmt::format(", the last of {}", ragged),
                                more == 0 ? fmt::format("{} on each of {} ranks", fewest, plan.ranks())
                                          : fmt::format("{} on {} ranks, {} on {}", fewest + 1, more, fewest,
                                                        plan.ranks() - more)));
  out.add("plan", fmt::format("{}, found by {} in {}", to_string(plan.kind()), to_string(plan.method()),
                              duration(static_cast<double>(timed.micros) / 1000)));
  out.add("peak", fmt::format("{}, peak/average {:.5f}", grouped(plan.peak()), plan.imbalance()));
  out.add("certificate", certificate(plan));
  if (!plan.record().needs.empty()) {
    const TrafficBytes bytes = plan.bytes(options.kv_heads, options.head_dim, options.element_bytes());
    out.add("between nodes",
            fmt::format("{} chunk crossings, {}; worst node {} in, {} out", grouped(plan.traffic().inter_chunks),
                        megabytes(bytes.inter), grouped(largest(plan.record().inbound)),
                        grouped(largest(plan.record().outbound))));
    out.add("inside nodes",
            fmt::format("{} chunk deliveries, {}", grouped(plan.traffic().intra_chunks), megabytes(bytes.intra)));
    out.add("key buffer", fmt::format("{} on the fullest rank", megabytes(buffer_bytes(plan, options))));
  }
  out.add("digest", fmt::format("{:016x}", plan.digest()));
  return out.text();
}

std::string rank_table(const Plan& plan) {
  Table table({"rank", "node", "load", "of peak", "chunks"});
  const std::vector<std::int64_t>& speeds = plan.record().speeds;
  const double fastest = speeds.empty() ? 1 : static_cast<double>(largest(speeds));
  for (std::int64_t r = 0; r < std::min<std::int64_t>(plan.ranks(), 64); ++r) {
    std::string chunks;
    for (const std::int64_t c : plan.chunks_of(r)) {
      if (chunks.size() > 60) {
        chunks += " ...";
        break;
      }
      chunks += fmt::format("{}{}", chunks.empty() ? "" : " ", c);
    }
    const std::int64_t load = plan.loads()[static_cast<std::size_t>(r)];
    const double slowness = speeds.empty() ? 1 : fastest / static_cast<double>(speeds[static_cast<std::size_t>(r)]);
    const double time = static_cast<double>(load) * slowness;  // what the peak is the largest of
    table.add({std::to_string(r), std::to_string(plan.node_of_rank(r)), grouped(load),
               percent(time / static_cast<double>(std::max<std::int64_t>(1, plan.peak()))), chunks});
  }
  std::string out = table.text();
  if (plan.ranks() > 64) out += fmt::format("... and {} more ranks\n", plan.ranks() - 64);
  return out;
}

/// All kinds on one workload; a layout that cannot hold the sizes says why.
void compare(const Workload& workload, const Options& options) {
  Table table({"kind", "peak/average", "above bound", "worst node in", "crossings", "deliveries", "MB between",
               "MB inside", "key buffer", "time"});
  std::string refused;
  for (const PlanKind kind : {PlanKind::contiguous, PlanKind::dual_chunk, PlanKind::per_document_dual_chunk,
                              PlanKind::lpt, PlanKind::hcc_ipo}) {
    if (kind == PlanKind::per_document_dual_chunk && workload.documents.empty()) {
      refused += fmt::format("{}: left out: {}\n", to_string(kind), kNeedsDocuments);
      continue;
    }
    BalanceOptions how = balance_options(options.request);
    how.kind = kind;
    try {
      const Timed timed = timed_plan(workload, how);
      const Plan& plan = timed.plan;
      const TrafficBytes bytes = plan.bytes(options.kv_heads, options.head_dim, options.element_bytes());
      table.add({std::string(to_string(kind)), fmt::format("{:.4f}", plan.imbalance()),
                 plan.proven_optimal() ? "optimal" : percent_up(plan.gap(), 3), grouped(largest(plan.record().inbound)),
                 grouped(plan.traffic().inter_chunks), grouped(plan.traffic().intra_chunks),
                 fmt::format("{:.1f}", static_cast<double>(bytes.inter) / 1e6),
                 fmt::format("{:.1f}", static_cast<double>(bytes.intra) / 1e6), megabytes(buffer_bytes(plan, options)),
                 duration(static_cast<double>(timed.micros) / 1000)});
    } catch (const Error& error) {
      const std::string name = fmt::format("{}: ", to_string(kind));
      std::string_view why = error.what();
      if (why.starts_with(name)) why.remove_prefix(name.size());
      refused += fmt::format("{}left out: {}\n", name, why);
    }
  }
  fmt::print("{}{}", table.text(), refused);
}

/// The numbers of a list option of --sweep.
std::vector<std::int64_t> sweep_numbers(std::string_view option, const std::string& text, std::int64_t most) {
  if (text.empty()) return {};
  return whole_numbers(option, text, 1, most);
}

/// The plan, or nothing and in `reason` why a layout cannot hold these sizes.
std::optional<Timed> plan_or_reason(const Workload& workload, const PlanRequest& request, std::string& reason) {
  try {
    return timed_plan(workload, balance_options(request));
  } catch (const Error& error) {
    if (plan_kind(request.kind) != PlanKind::per_document_dual_chunk) throw;
    reason = error.what();
    return std::nullopt;
  }
}

/// Chunk sizes against ranks: what finer chunks buy and cost.
void sweep(const PlanMasks& masks, const Options& options) {
  check(!masks.masks.empty(), "--sweep needs a mask: bare loads have one chunk size");
  std::vector<std::int64_t> chunks = sweep_numbers("--sweep-chunks", options.sweep_chunks, kLongestChunk);
  std::vector<std::int64_t> ranks = sweep_numbers("--sweep-ranks", options.sweep_ranks, kMostRanks);
  if (chunks.empty()) {
    for (const std::int64_t c : {256, 512, 1024, 2048, 4096}) {
      if (c <= masks.masks.front().mask.shape().columns) chunks.push_back(c);
    }
  }
  if (ranks.empty()) ranks = {4, 8, 16, 32};
  std::string left_out, refused;
  Table table({"chunk", "ranks", "chunks a rank", "peak/average", "above bound", "dual_chunk", "worst node in MB",
               "key buffer", "time"});
  for (const std::int64_t c : chunks) {
    for (const std::int64_t r : ranks) {
      PlanRequest request = options.request;
      request.chunk = c;
      request.ranks = r;
      const std::int64_t columns = masks.masks.front().mask.shape().columns;
      if (request.nodes > r || (columns + c - 1) / c < r) {
        left_out += fmt::format("left out: chunk {} on {} ranks: {}\n", c, r,
                                request.nodes > r ? fmt::format("fewer ranks than {} nodes", request.nodes)
                                                  : fmt::format("only {} chunks", (columns + c - 1) / c));
        continue;
      }
      const Workload workload = plan_workload(request, masks);
      const std::optional<Timed> planned = plan_or_reason(workload, request, refused);
      if (!planned) {
        left_out += fmt::format("left out: chunk {} on {} ranks: {}\n", c, r, refused);
        continue;
      }
      const Timed& timed = *planned;
      const Plan dual = balance(workload, {.kind = PlanKind::dual_chunk});
      const std::int64_t row_bytes = 2 * options.kv_heads * options.head_dim * options.element_bytes();
      const std::int64_t in = largest(timed.plan.record().inbound) * c * row_bytes;
      table.add({std::to_string(c), std::to_string(r),
                 fmt::format("{:.4g}", static_cast<double>(workload.chunks()) / static_cast<double>(r)),
                 fmt::format("{:.4f}", timed.plan.imbalance()),
                 timed.plan.proven_optimal() ? "optimal" : percent_up(timed.plan.gap(), 3),
                 fmt::format("{:.4f}", dual.imbalance()), fmt::format("{:.1f}", static_cast<double>(in) / 1e6),
                 megabytes(buffer_bytes(timed.plan, options)), duration(static_cast<double>(timed.micros) / 1000)});
    }
  }
  fmt::print("{}{}", table.text(), left_out);
}

/// The option that writes to standard output, if any; refuses two outputs to one place.
std::string taken_output(const Options& options) {
  return check_outputs({{"--json", options.json}, {"--svg", options.svg}});
}

/// Refuses what was given and would not be used.
void check_use(const Options& options) {
  const CLI::App& command = *options.request.mask.command;
  taken_output(options);
  check(!options.compare || !options.sweep, "--compare and --sweep are two tables: ask for one of them");
  if (!options.sweep) refuse_given(command, {"--sweep-chunks", "--sweep-ranks"}, "it belongs to --sweep");
  if (options.sweep) {
    refuse_given(command, {"--chunk", "--ranks", "--speeds", "--json", "--svg"},
                 "--sweep prints a table over its own chunk sizes and ranks");
  }
  if (options.compare) refuse_given(command, {"--kind", "--json", "--svg"}, "--compare prints a table of all kinds");
  if (!options.compare && plan_kind(options.request.kind) != PlanKind::hcc_ipo) {
    refuse_given(command, {"--epsilon", "--search-seed", "--steps", "--proof-steps", "--time-budget"},
                 fmt::format("--kind {} does not search, only hcc_ipo does", options.request.kind));
  }
}

/// The exit code.
int execute(const Options& options) {
  if (given(*options.request.mask.command, "--verify"))
    return verify_plan_file(options.request, options.verify, options.json);
  check_use(options);
  const PlanMasks masks = plan_masks(options.request);
  if (options.sweep) {
    sweep(masks, options);
    return 0;
  }
  const Workload workload = plan_workload(options.request, masks);
  if (options.compare) {
    compare(workload, options);
    return 0;
  }
  std::string name = fmt::format("{} bare loads", workload.chunks());
  for (std::size_t m = 0; m < masks.masks.size(); ++m) {
    if (m == 0) name.clear();
    name += fmt::format("{}{}{}", m == 0 ? "" : " + ",
                        masks.weights[m] == 1 ? "" : fmt::format("{} x ", masks.weights[m]), masks.masks[m].name);
  }
  const auto plan_it = [&] { return timed_plan(workload, balance_options(options.request)); };
  const Timed timed = of_kind("--kind", options.request.kind, plan_it);
  if (!options.svg.empty()) {
    const ColumnMask* mask = masks.masks.empty() ? nullptr : &masks.masks.front().mask;
    format::write_file(options.svg, plan_picture(timed.plan, mask, name));
  }
  if (!options.json.empty()) write_json(options.json, format::plan_json(timed.plan, timed.micros));
  if (taken_output(options).empty()) fmt::print("{}\n{}", sheet(timed, name, options), rank_table(timed.plan));
  return 0;
}

}  // namespace

void add_plan(CLI::App& parent, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = parent.add_subcommand("plan", "Share chunks out to ranks, with a certificate");
  command->footer(
      "Examples:\n"
      "  flashmask plan --loads 10,9,9,7,7,6,5,3,1 --ranks 3 --json\n"
      "  flashmask plan --workload histogram --rows 131072 --ranks 16 --nodes 2 --svg plan.svg\n"
      "  flashmask plan --workload histogram --rows 131072 --ranks 16 --nodes 2 --compare\n"
      "  flashmask plan --workload histogram --rows 131072 --layers causal_document:12,sliding_window:36 --ranks 8\n"
      "  flashmask plan --workload pack:131072 --sweep --nodes 2\n"
      "  flashmask plan --workload histogram --rows 131072 --ranks 16 --json plan.json\n"
      "  flashmask plan --verify plan.json --workload histogram --rows 131072");
  add_plan_options(*command, options->request);
  const std::string group = "What to do with it";
  command
      ->add_option("--json", options->json,
                   "Write the plan, or the verdict of --verify, as JSON to this file; - is standard output")
      ->expected(0, 1)
      ->default_str("-")
      ->group(group);
  command
      ->add_option("--svg", options->svg,
                   "Write a picture to this file: mask, owners, tile classes, loads; - is standard output")
      ->group(group);
  command->add_flag("--compare", options->compare, "All kinds side by side")->group(group);
  command->add_flag("--sweep", options->sweep, "A table over chunk sizes and ranks")->group(group);
  command->add_option("--sweep-chunks", options->sweep_chunks, "Chunk sizes of --sweep")->group(group);
  command->add_option("--sweep-ranks", options->sweep_ranks, "Ranks of --sweep")->group(group);
  command->add_option("--verify", options->verify, "Check a plan file, against the mask if one is named")->group(group);
  command->add_option("--kv-heads", options->kv_heads, "KV heads, for bytes")
      ->check(whole_number(1, 65536))
      ->capture_default_str()
      ->group(group);
  command->add_option("--head-dim", options->head_dim, "Head dimension, for bytes")
      ->check(whole_number(1, 65536))
      ->capture_default_str()
      ->group(group);
  command->add_option("--dtype", options->dtype, "bf16, fp16 or f32, for bytes")
      ->check(CLI::IsMember({"bf16", "fp16", "f32"}))
      ->capture_default_str()
      ->group(group);
  command->callback([options, &exit_code] { exit_code = execute(*options); });
}

}  // namespace flashmask::app
