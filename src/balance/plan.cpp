// Plan: the checked value and how two of them differ.
#include <algorithm>
#include <numeric>

#include "balance/instance.hpp"
#include "balance/traffic.hpp"
#include "core/check.hpp"
#include "flashmask/balance.hpp"

namespace flashmask {
namespace {

using core::check;

void check_extents(const PlanRecord& r) {
  const std::int64_t chunks = static_cast<std::int64_t>(r.assignment.size());
  check(r.ranks >= 1 && r.ranks <= kMostRanks, "ranks = {}: a plan has 1 to {} ranks", r.ranks, kMostRanks);
  check(r.nodes >= 1 && r.nodes <= r.ranks, "nodes = {}: a plan of {} ranks has 1 to {} nodes", r.nodes, r.ranks,
        r.ranks);
  check(chunks <= kMostChunks, "assignment: {} chunks, at most {} are supported", chunks, kMostChunks);
  check(r.chunk >= 1, "chunk = {}: must be at least 1 token", r.chunk);
  check(r.columns >= 0 && r.columns <= (std::int64_t{1} << 40), "columns = {}: must be in [0, 2^40]", r.columns);
  check(r.columns / r.chunk + (r.columns % r.chunk != 0) == chunks,
        "columns = {} in chunks of {} are {} chunks but assignment has {}", r.columns, r.chunk,
        r.columns / r.chunk + (r.columns % r.chunk != 0), chunks);
  check(r.chunk_loads.size() == r.assignment.size(), "chunk_loads has {} entries for {} chunks", r.chunk_loads.size(),
        chunks);
  check(r.loads.size() == static_cast<std::size_t>(r.ranks), "loads has {} entries for {} ranks", r.loads.size(),
        r.ranks);
  check(r.speeds.empty() || r.speeds.size() == r.loads.size(), "speeds has {} entries for {} ranks", r.speeds.size(),
        r.ranks);
  check(r.epsilon_millionths >= 0 && r.epsilon_millionths <= kMostEpsilonMillionths,
        "epsilon_millionths = {}: must be in [0, {}]", r.epsilon_millionths, kMostEpsilonMillionths);
}

void check_loads(const PlanRecord& r) {
  std::vector<std::int64_t> loads(r.loads.size(), 0);
  std::vector<std::int64_t> counts(r.loads.size(), 0);
  std::int64_t total = 0;
  for (std::size_t c = 0; c < r.assignment.size(); ++c) {
    const std::int64_t rank = r.assignment[c];
    check(rank >= 0 && rank < r.ranks, "assignment[{}] = {}: not a rank in [0, {})", c, rank, r.ranks);
    check(r.chunk_loads[c] >= 0 && r.chunk_loads[c] <= kMostLoad - total,
          "chunk_loads[{}] = {}: loads are >= 0 and sum to at most 2^62", c, r.chunk_loads[c]);
    total += r.chunk_loads[c];
    loads[static_cast<std::size_t>(rank)] += r.chunk_loads[c];
    ++counts[static_cast<std::size_t>(rank)];
  }
  const auto [fewest, most] = std::minmax_element(counts.begin(), counts.end());
  check(*most - *fewest <= 1, "assignment gives rank {} {} chunks and rank {} {}: counts may differ by one at most",
        most - counts.begin(), *most, fewest - counts.begin(), *fewest);
  std::int64_t peak = 0, fastest = 1;
  for (const std::int64_t s : r.speeds) {
    check(s >= 1 && s <= kMostSpeed, "speeds: {} is not in [1, {}]", s, kMostSpeed);
    fastest = std::max(fastest, s);
  }
  balancing::check_sum("chunk_loads", total, r.speeds);
  for (std::size_t k = 0; k < loads.size(); ++k) {
    check(loads[k] == r.loads[k], "loads[{}] = {} but its chunks carry {}", k, r.loads[k], loads[k]);
    peak = std::max(
        peak, r.speeds.empty() ? loads[k] : balancing::ceil_div(balancing::Int128{loads[k]} * fastest, r.speeds[k]));
  }
  check(peak == r.peak, "peak = {} but the largest rank load is {}", r.peak, peak);
  check(r.lower_bound >= 0 && r.lower_bound <= r.peak, "lower_bound = {} is not in [0, peak = {}]", r.lower_bound,
        r.peak);
  check(r.proven_optimal == (r.lower_bound == r.peak), "proven_optimal = {} with peak {} and lower_bound {}",
        r.proven_optimal, r.peak, r.lower_bound);
}

void check_residue(const PlanRecord& r) {
  if (!r.residue) return;
  check(r.bound_by == BoundBy::residue, "residue: it is what a bound by residue rests on, but bound_by is {}",
        to_string(r.bound_by));
  const auto [modulus, rest, other] = *r.residue;
  check(modulus >= 2 && rest >= 0 && rest < modulus && other >= -1 && other < modulus && other != rest,
        "residue: modulus = {}, rest = {}, other = {}: the modulus is at least 2, the rest at least 0 and below it, "
        "and so "
        "is another one, or -1 for none",
        modulus, rest, other);
}

void check_needs(const PlanRecord& r) {
  const std::int64_t chunks = static_cast<std::int64_t>(r.assignment.size());
  for (std::size_t m = 0; m < r.needs.size(); ++m) {
    const NeedSets& n = r.needs[m];
    check(n.weight >= 1 && n.weight <= kMostLayers, "needs[{}].weight = {}: must be in [1, {}]", m, n.weight,
          kMostLayers);
    check(n.chunks() == chunks && n.batch() <= (1 << 20), "needs[{}]: {} batch rows of {} chunks do not fit {} chunks",
          m, n.batch(), n.chunks(), chunks);
  }
}

void check_traffic(const PlanRecord& r) {
  const auto report = balancing::count_traffic(r.needs, r.assignment, r.ranks, r.nodes, r.columns, r.chunk);
  check(report.inbound == r.inbound, "inbound does not follow from assignment and needs");
  check(report.outbound == r.outbound, "outbound does not follow from assignment and needs");
  check(report.traffic == r.traffic, "traffic does not follow from assignment and needs");
}

}  // namespace

Plan::Plan(PlanRecord record) : Plan(std::move(record), Traffics::recounted) {}

Plan::Plan(PlanRecord record, Traffics traffics) : record_(std::move(record)) {
  check_extents(record_);
  check_loads(record_);
  check_residue(record_);
  check_needs(record_);
  if (traffics == Traffics::recounted) check_traffic(record_);
  balancing::check_tile_work(record_.unit, record_.tile_work);
  offsets_.assign(static_cast<std::size_t>(record_.ranks) + 1, 0);
  for (const std::int64_t rank : record_.assignment) ++offsets_[static_cast<std::size_t>(rank) + 1];
  std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
  owned_.resize(record_.assignment.size());
  std::vector<std::int64_t> next(offsets_.begin(), offsets_.end() - 1);
  for (std::size_t c = 0; c < record_.assignment.size(); ++c) {
    owned_[static_cast<std::size_t>(next[static_cast<std::size_t>(record_.assignment[c])]++)] =
        static_cast<std::int64_t>(c);
  }
  digest_ = plan_digest(record_);
}

std::span<const std::int64_t> Plan::chunks_of(std::int64_t rank) const {
  const std::size_t r = static_cast<std::size_t>(rank);
  return std::span(owned_).subspan(static_cast<std::size_t>(offsets_[r]),
                                   static_cast<std::size_t>(offsets_[r + 1] - offsets_[r]));
}

std::int64_t Plan::chunk_end(std::int64_t c) const {
  return std::min((c + 1) * record_.chunk, record_.columns);
}

std::int64_t Plan::rows_of(std::int64_t rank) const {
  std::int64_t rows = 0;
  for (const std::int64_t c : chunks_of(rank)) rows += chunk_end(c) - chunk_begin(c);
  return rows;
}

double Plan::imbalance() const {
  double total = 0, capacity = 0, fastest = 1;
  for (const std::int64_t load : record_.loads) total += static_cast<double>(load);
  if (total == 0) return 1;
  for (const std::int64_t s : record_.speeds) {
    capacity += static_cast<double>(s);
    fastest = std::max(fastest, static_cast<double>(s));
  }
  if (record_.speeds.empty()) capacity = static_cast<double>(record_.ranks);
  return static_cast<double>(record_.peak) * capacity / (total * fastest);
}

double Plan::gap() const {
  if (record_.peak == record_.lower_bound) return 0;
  return static_cast<double>(record_.peak - record_.lower_bound) /
         std::max(1.0, static_cast<double>(record_.lower_bound));
}

TrafficBytes Plan::bytes(std::int64_t kv_heads, std::int64_t head_dim, std::int64_t element_bytes) const {
  check(kv_heads >= 1 && head_dim >= 1 && element_bytes >= 1,
        "kv_heads = {}, head_dim = {}, element_bytes = {}: all must be positive", kv_heads, head_dim, element_bytes);
  std::int64_t row = 2 * element_bytes;  // keys and values
  TrafficBytes bytes{};
  check(!__builtin_mul_overflow(row, kv_heads, &row) && !__builtin_mul_overflow(row, head_dim, &row) &&
            !__builtin_mul_overflow(record_.traffic.inter_rows, row, &bytes.inter) &&
            !__builtin_mul_overflow(record_.traffic.intra_rows, row, &bytes.intra),
        "kv_heads = {}, head_dim = {}: the {} rows that travel are 2^63 bytes or more", kv_heads, head_dim,
        std::max(record_.traffic.inter_rows, record_.traffic.intra_rows));
  return bytes;
}

namespace {

std::string differ(std::string_view name, std::int64_t a, std::int64_t b) {
  return a == b ? std::string() : core::format("{}: {} != {}", name, a, b);
}

std::string differ(std::string_view name, std::string_view a, std::string_view b) {
  return a == b ? std::string() : core::format("{}: {} != {}", name, a, b);
}

std::string differ(std::string_view name, std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  if (a.size() != b.size()) return core::format("{}: {} entries != {}", name, a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) return core::format("{}[{}]: {} != {}", name, i, a[i], b[i]);
  }
  return {};
}

}  // namespace

std::string first_difference(const Plan& left, const Plan& right) {
  const PlanRecord& a = left.record();
  const PlanRecord& b = right.record();
  const std::string fields[] = {
      differ("columns", a.columns, b.columns),
      differ("chunk", a.chunk, b.chunk),
      differ("ranks", a.ranks, b.ranks),
      differ("nodes", a.nodes, b.nodes),
      differ("kind", to_string(a.kind), to_string(b.kind)),
      differ("unit", to_string(a.unit), to_string(b.unit)),
      differ("assignment", a.assignment, b.assignment),
      differ("chunk_loads", a.chunk_loads, b.chunk_loads),
      differ("speeds", a.speeds, b.speeds),
      differ("loads", a.loads, b.loads),
      differ("peak", a.peak, b.peak),
      differ("lower_bound", a.lower_bound, b.lower_bound),
      differ("bound_by", to_string(a.bound_by), to_string(b.bound_by)),
      differ("proven_optimal", std::int64_t{a.proven_optimal}, std::int64_t{b.proven_optimal}),
      differ("method", to_string(a.method), to_string(b.method)),
      differ("epsilon_millionths", a.epsilon_millionths, b.epsilon_millionths),
      a.seed == b.seed ? std::string() : core::format("seed: {} != {}", a.seed, b.seed),
      a.needs == b.needs ? std::string() : std::string("needs: the masks differ"),
      differ("inbound", a.inbound, b.inbound),
      differ("outbound", a.outbound, b.outbound),
      differ("traffic.inter_chunks", a.traffic.inter_chunks, b.traffic.inter_chunks),
      differ("traffic.intra_chunks", a.traffic.intra_chunks, b.traffic.intra_chunks),
      differ("traffic.inter_rows", a.traffic.inter_rows, b.traffic.inter_rows),
      differ("traffic.intra_rows", a.traffic.intra_rows, b.traffic.intra_rows),
      a.tile_work == b.tile_work ? std::string() : std::string("tile_work: tiles were counted otherwise"),
      a.residue == b.residue ? std::string() : std::string("residue: the bounds rest on two lattices"),
  };
  for (const std::string& text : fields) {
    if (!text.empty()) return text;
  }
  return {};
}

}  // namespace flashmask
