#include "ranks.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstring>

#include "comm/local/world.hpp"
#include "core/check.hpp"
#include "flashmask/dispatch.hpp"
#include "flashmask/tile.hpp"
#include "format/plan_json.hpp"
#include "given.hpp"
#include "overlap/contamination.hpp"
#include "report.hpp"

namespace flashmask::app {
namespace {

using core::check;

/// A rank's rows of a contiguous tensor, as a view of memory of its own.
struct Local {
  Shard shard;
  TensorView view;

  Local(const Plan& plan, std::int64_t rank, const TensorView& from, std::int64_t batch, std::int64_t heads,
        std::int64_t dim) {
    const std::size_t row = static_cast<std::size_t>(heads * dim) * size_of(from.dtype);
    const auto* bytes = static_cast<const std::byte*>(from.data);
    shard = dispatch(plan, rank, {bytes, static_cast<std::size_t>(batch * plan.columns()) * row}, batch, row);
    view = {shard.data.data(), from.dtype, bshd_strides(plan.rows_of(rank), heads, dim)};
  }
  [[nodiscard]] MutableTensorView writable() { return {shard.data.data(), view.dtype, view.strides}; }
};

/// Shards of one result, filled rank by rank, then put together into the caller's tensor.
class Result {
 public:
  Result(const Plan& plan, std::size_t ranks) : plan_(plan), shards_(ranks) {}
  void keep(Shard shard) {
    const auto rank = static_cast<std::size_t>(shard.rank);
    shards_[rank] = std::move(shard);
  }
  void store(void* to) const {
    const auto whole = undispatch(plan_, shards_);
    if (!whole.empty()) std::memcpy(to, whole.data(), whole.size());
  }

 private:
  const Plan& plan_;
  std::vector<Shard> shards_;
};

TensorView lse_view(const float* lse) {
  return {lse, DType::f32, {}};
}

/// Kinds have neither dots nor slashes in their names.
bool is_plan_file(const std::string& plan) {
  return plan.find_first_of("./") != std::string::npos;
}

std::array<std::int64_t, kLinks> bytes_of(const LinkCounters& counters, Stage stage) {
  return {counters.bytes_of(stage, Link::inside), counters.bytes_of(stage, Link::between)};
}

}  // namespace

void add_ranks_options(CLI::App& command, RanksOptions& options) {
  const std::string group = "Context parallelism on virtual ranks";
  command.add_option("--ranks", options.ranks, "Ranks (threads of this process); 0: one device")
      ->check(whole_number(0, 1024))
      ->capture_default_str()
      ->group(group);
  command.add_option("--nodes", options.nodes, "Nodes the ranks live on")
      ->check(whole_number(1, 1024))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--plan", options.plan,
                  "A plan file (a path with a dot or a slash), or a kind: hcc_ipo, contiguous, dual_chunk, "
                  "per_document_dual_chunk, lpt")
      ->capture_default_str()
      ->group(group);
  command.add_option("--chunk", options.chunk, "Rows of a chunk; 0: eight chunks a rank, a multiple of 64 rows")
      ->check(whole_number(0, format::kMaxTokens))
      ->capture_default_str()
      ->group(group);
  command.add_option("--deadline", options.deadline, "Seconds any wait may take")
      ->check(whole_number(1, 86400))
      ->capture_default_str()
      ->group(group);
}

void check_ranks_options(const CLI::App& command, const RanksOptions& options, bool on_ranks) {
  if (!on_ranks) {
    refuse_given(command, {"--nodes", "--plan", "--chunk", "--deadline"}, "it belongs to --ranks, which is not given");
  }
  if (!is_plan_file(options.plan)) {
    std::string kind = options.plan;
    const std::string refused = one_of_kinds()(kind);
    check(refused.empty(), "--plan: {}; a path of a plan file has a dot or a slash", refused);
  }
  if (is_plan_file(options.plan)) refuse_given(command, {"--chunk"}, "the plan file says how long chunks are");
}

std::int64_t default_chunk(std::int64_t columns, std::int64_t ranks) {
  constexpr std::int64_t kStep = 64;
  return std::max(kStep, columns / (8 * ranks) / kStep * kStep);
}

void check_chunks(std::int64_t columns, std::int64_t chunk, std::int64_t batch) {
  constexpr std::int64_t kMostPairs = std::int64_t{1} << 34;
  const std::int64_t chunks = (columns + chunk - 1) / chunk;  // at most the tokens of a mask, 2^31
  check(chunks == 0 || chunks <= kMostPairs / batch / chunks,
        "--chunk {}: {} chunks in {} batch rows are more than can be planned: of scattered masks the need sets grow "
        "with the pairs of chunks (131072 chunks of random_eviction take 3 GB); take longer chunks or fewer ranks",
        chunk, chunks, batch);
}

std::vector<std::vector<std::int64_t>> documents_of(const NamedMask& named) {
  const MaskShape& shape = named.mask.shape();
  std::vector<std::vector<std::int64_t>> all;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    auto& lengths = all.emplace_back();
    if (named.workload && static_cast<std::size_t>(b) < named.workload->batch.size()) {
      for (const auto& d : named.workload->batch[static_cast<std::size_t>(b)].documents) lengths.push_back(d.length);
    }
    if (lengths.empty()) lengths.push_back(shape.columns);
  }
  return all;
}

/// What a plan's chunks carry must be what they cost under this mask, times the layers it was counted for: exactly
/// where the plan serves one mask, at least that where it serves several. Cells are counted alike by everybody and
/// tiles as the plan says; what bare numbers mean, and tiles of a plan that does not say, cannot be told.
void check_chunk_loads(const std::string& file, const Plan& plan, const ColumnMask& mask, std::int64_t weight) {
  const PlanRecord& record = plan.record();
  if (record.unit != WorkUnit::cells && !record.tile_work) return;
  WorkloadOptions how{.chunk = plan.chunk(), .ranks = plan.ranks(), .unit = record.unit};
  if (const auto& work = record.tile_work) {
    how.tile_shape = work->tile_shape;
    how.costs = work->costs;
    how.forward_weight = work->forward_weight;
    how.backward_weight = work->backward_weight;
  }
  const WeightedMask once{&mask, 1};
  const std::vector<std::int64_t> own =
      format::naming("--plan " + file, [&] { return make_workload(std::span(&once, 1), how).loads; });
  const bool alone = record.needs.size() == 1;
  for (std::size_t c = 0; c < own.size(); ++c) {
    const std::int64_t carried = record.chunk_loads[c];
    if (own[c] <= carried / weight && (!alone || own[c] * weight == carried)) continue;
    core::fail(ErrorCode::invalid_argument,
               "--plan {}: chunk {} carries {}{} in the file but {} under this mask{}; it was made for another mask of "
               "the same need sets, make one with `flashmask plan` and the mask of this run",
               file, c, carried, record.unit == WorkUnit::cells ? " cells" : " by tile costs", own[c],
               weight == 1 ? "" : fmt::format(", in each of {} layers", weight));
  }
}

/// A plan file must be for this run: same ranks, nodes and tokens, and this mask among those it was made for, or its
/// certificate would speak of another job.
Plan read_plan(const RanksOptions& options, const ColumnMask& mask) {
  const std::int64_t columns = mask.shape().columns;
  Plan plan = format::parse_plan(read_given("--plan", options.plan), options.plan);
  check(plan.ranks() == options.ranks && plan.nodes() == options.nodes,
        "--plan {}: it is for {} ranks on {} nodes; run with --ranks {} --nodes {}", options.plan, plan.ranks(),
        plan.nodes(), plan.ranks(), plan.nodes());
  check(plan.columns() == columns, "--plan {}: it deals {} tokens, the mask has {}", options.plan, plan.columns(),
        columns);
  const NeedRuns mine = NeedRuns::build(mask, plan.chunk());
  const auto& theirs = plan.record().needs;
  const auto served = std::find_if(theirs.begin(), theirs.end(), [&](const NeedSets& n) { return n.matrix() == mine; });
  check(served != theirs.end(),
        "--plan {}: it was made for another mask (its need sets differ); make one with `flashmask plan` and the mask "
        "of this run",
        options.plan);
  check_chunk_loads(options.plan, plan, mask, served->weight);
  return plan;
}

Plan plan_of(const RanksOptions& options, const NamedMask& named) {
  const MaskShape& shape = named.mask.shape();
  check(shape.rows == shape.columns, "--ranks needs as many rows as columns, got {} and {}", shape.rows, shape.columns);
  check(options.nodes <= options.ranks, "--nodes {}: allowed are 1 to the number of ranks, {}", options.nodes,
        options.ranks);
  if (is_plan_file(options.plan)) return read_plan(options, named.mask);
  WorkloadOptions how;
  how.ranks = options.ranks;
  how.nodes = options.nodes;
  how.forward_weight = how.backward_weight = 1;
  how.chunk = options.chunk > 0 ? options.chunk : default_chunk(shape.columns, options.ranks);
  check_chunks(shape.columns, how.chunk, shape.batch);
  const WeightedMask mask{&named.mask, 1};
  Workload workload = make_workload(std::span(&mask, 1), how);
  workload.documents = documents_of(named)[0];
  BalanceOptions balancing;
  balancing.kind = plan_kind(options.plan);
  return of_kind("--plan", options.plan, [&] { return balance(workload, balancing); });
}

RankEngine::RankEngine(const ColumnMask& mask, Plan plan, std::chrono::milliseconds deadline)
    : mask_(mask),
      plan_(std::move(plan)),
      routes_(mask_, plan_),
      deadline_(deadline),
      reports_(static_cast<std::size_t>(plan_.ranks())) {}

/// Calls call(context, communicator, rank) on every rank and adds what each sent to the reports.
template <typename F>
void RankEngine::run(const AttentionShape& shape, DType dtype, int gathers, int reduces, const F& call) {
  comm::LocalOptions options;
  options.ranks = static_cast<std::int32_t>(plan_.ranks());
  options.nodes = static_cast<std::int32_t>(plan_.nodes());
  options.deadline = deadline_;
  comm::LocalWorld world(options);
  std::vector<double> times(reports_.size());
  comm::run_ranks_or_throw(world, [&](Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    ContextParallel context(mask_, plan_, communicator,
                            {shape.batch, shape.query_heads, shape.kv_heads, shape.head_dim, dtype}, {}, routes_);
    reports_[rank].planned = context.planned();
    call(context, communicator, times[rank]);
  });
  milliseconds_ = *std::max_element(times.begin(), times.end());
  for (std::size_t r = 0; r < reports_.size(); ++r) {
    RankReport& report = reports_[r];
    const LinkCounters sent = world.sent(static_cast<std::int32_t>(r)).read();
    for (std::size_t link = 0; link < kLinks; ++link) {
      report.gather_sent[link] += bytes_of(sent, Stage::gather)[link];
      report.reduce_sent[link] += bytes_of(sent, Stage::reduce)[link];
      report.gather_needed[link] += gathers * report.planned.gather_bytes[link];
      report.reduce_needed[link] += reduces * report.planned.reduce_bytes[link];
    }
  }
}

void RankEngine::forward(const ForwardArguments& a) {
  const AttentionShape& s = a.shape;
  Result out(plan_, reports_.size()), lse(plan_, reports_.size());
  run(s, a.q.dtype, 1, 0, [&](ContextParallel& context, Communicator& communicator, double& time) {
    const std::int64_t r = communicator.rank();
    const Local q(plan_, r, a.q, s.batch, s.query_heads, s.head_dim), k(plan_, r, a.k, s.batch, s.kv_heads, s.head_dim),
        v(plan_, r, a.v, s.batch, s.kv_heads, s.head_dim);
    Local o(plan_, r, a.out, s.batch, s.query_heads, s.head_dim),
        l(plan_, r, lse_view(a.lse), s.batch * s.query_heads, 1, 1);
    communicator.all_gather({}, {});
    const Stopwatch watch;
    context.forward(q.view, k.view, v.view, o.writable(), reinterpret_cast<float*>(l.shard.data.data()), a.scale);
    time = watch.milliseconds();
    out.keep(std::move(o.shard));
    lse.keep(std::move(l.shard));
  });
  out.store(a.out.data);
  lse.store(a.lse);
}

void RankEngine::backward(const BackwardArguments& a) {
  const AttentionShape& s = a.shape;
  Result dq(plan_, reports_.size()), dk(plan_, reports_.size()), dv(plan_, reports_.size());
  run(s, a.q.dtype, 1, 1, [&](ContextParallel& context, Communicator& communicator, double& time) {
    const std::int64_t r = communicator.rank();
    const auto rows = [&](const TensorView& t) { return Local(plan_, r, t, s.batch, s.query_heads, s.head_dim); };
    const auto columns = [&](const TensorView& t) { return Local(plan_, r, t, s.batch, s.kv_heads, s.head_dim); };
    const Local q = rows(a.q), k = columns(a.k), v = columns(a.v), out = rows(a.out), dout = rows(a.dout);
    const Local lse(plan_, r, lse_view(a.lse), s.batch * s.query_heads, 1, 1);
    Local gq = rows(a.dq), gk = columns(a.dk), gv = columns(a.dv);
    communicator.all_gather({}, {});
    const Stopwatch watch;
    context.backward(q.view, k.view, v.view, out.view, dout.view, static_cast<const float*>(lse.view.data),
                     gq.writable(), gk.writable(), gv.writable(), a.scale);
    time = watch.milliseconds();
    dq.keep(std::move(gq.shard));
    dk.keep(std::move(gk.shard));
    dv.keep(std::move(gv.shard));
  });
  dq.store(a.dq.data);
  dk.store(a.dk.data);
  dv.store(a.dv.data);
}

std::vector<std::string> RankEngine::contamination(const AttentionShape& s,
                                                   const std::vector<std::vector<std::int64_t>>& documents) {
  overlap::ContaminationCheck inspector(mask_, plan_, s.query_heads, s.kv_heads, s.head_dim, documents);
  const auto elements = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const std::vector<float> zero_q(elements(s.batch * s.rows * s.query_heads * s.head_dim), 0.0F);
  const std::vector<float> zero_k(elements(s.batch * s.columns * s.kv_heads * s.head_dim), 0.0F);
  const auto rows_strides = bshd_strides(s.rows, s.query_heads, s.head_dim);
  const auto columns_strides = bshd_strides(s.columns, s.kv_heads, s.head_dim);
  const auto calls = static_cast<int>(inspector.calls());
  std::vector<std::vector<float>> outs, lses, values;
  for (int c = 0; c < calls; ++c) {
    values.push_back(inspector.values(c));
    outs.emplace_back(zero_q.size());
    lses.emplace_back(elements(s.batch * s.query_heads * s.rows));
  }
  std::vector<Result> out(elements(calls), Result(plan_, reports_.size())), lse = out;
  // In float32 so that counts are exact; what moves, and where, does not depend on the dtype.
  run(s, DType::f32, calls, 0, [&](ContextParallel& context, Communicator& communicator, double& time) {
    const std::int64_t r = communicator.rank();
    const Local q(plan_, r, {zero_q.data(), DType::f32, rows_strides}, s.batch, s.query_heads, s.head_dim);
    const Local k(plan_, r, {zero_k.data(), DType::f32, columns_strides}, s.batch, s.kv_heads, s.head_dim);
    const Stopwatch watch;
    for (int c = 0; c < calls; ++c) {  // back to back: the previous call's values are still in every buffer
      const auto at = static_cast<std::size_t>(c);
      const Local v(plan_, r, {values[at].data(), DType::f32, columns_strides}, s.batch, s.kv_heads, s.head_dim);
      Local o(plan_, r, {outs[at].data(), DType::f32, rows_strides}, s.batch, s.query_heads, s.head_dim);
      Local l(plan_, r, lse_view(lses[at].data()), s.batch * s.query_heads, 1, 1);
      context.forward(q.view, k.view, v.view, o.writable(), reinterpret_cast<float*>(l.shard.data.data()), {});
      out[at].keep(std::move(o.shard));
      lse[at].keep(std::move(l.shard));
    }
    time = watch.milliseconds();
  });
  for (int c = 0; c < calls; ++c) {
    const auto at = static_cast<std::size_t>(c);
    out[at].store(outs[at].data());
    lse[at].store(lses[at].data());
    inspector.inspect(c, outs[at], lses[at]);
  }
  std::vector<std::string> sentences;
  for (const auto& f : inspector.findings()) {
    sentences.push_back(fmt::format("{}: {} ({} rows)", to_string(f.kind), f.text, f.rows_affected));
  }
  return sentences;
}

std::vector<std::string> RankEngine::byte_failures() const {
  std::vector<std::string> failures;
  for (std::size_t r = 0; r < reports_.size(); ++r) {
    for (const Link link : {Link::inside, Link::between}) {
      const auto l = static_cast<std::size_t>(link);
      const std::int64_t sent = reports_[r].gather_sent[l] + reports_[r].reduce_sent[l];
      const std::int64_t needed = reports_[r].gather_needed[l] + reports_[r].reduce_needed[l];
      if (sent != needed) {
        failures.push_back(fmt::format("rank {} sent {} bytes {}, needed are {}", r, sent, to_string(link), needed));
      }
    }
  }
  return failures;
}

}  // namespace flashmask::app
