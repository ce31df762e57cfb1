#include "balance/traffic.hpp"

#include <algorithm>
#include <limits>

#include "balance/instance.hpp"
#include "core/check.hpp"
#include "tile/run_union.hpp"

namespace flashmask::balancing {
namespace {

/// Chunks and their token rows; of a file's layers and lengths the latter may leave int64.
struct Units {
  std::int64_t chunks = 0;
  Int128 rows = 0;
  Units operator-(const Units& o) const { return {chunks - o.chunks, rows - o.rows}; }
  Units& operator+=(const Units& o) {
    chunks += o.chunks;
    rows += o.rows;
    return *this;
  }
};

/// The axis that is cut into chunks, of which the last may be shorter.
struct Axis {
  std::int64_t chunks, columns, chunk;

  [[nodiscard]] Units units(std::int64_t count, bool with_last) const {
    return {count, Int128{count} * chunk - (with_last ? Int128{chunks} * chunk - columns : 0)};
  }
  [[nodiscard]] Units units(std::span<const ChunkRun> runs) const {
    std::int64_t count = 0;
    for (const ChunkRun& run : runs) count += run.end - run.begin;
    return units(count, !runs.empty() && runs.back().end == chunks);
  }
  /// Those of `own`, ascending, that lie in `runs`.
  [[nodiscard]] Units units_among(std::span<const std::size_t> own, std::span<const ChunkRun> runs) const {
    std::int64_t count = 0;
    std::size_t k = 0;
    bool last = false;
    for (const std::size_t c : own) {
      const auto id = static_cast<std::int64_t>(c);
      while (k < runs.size() && runs[k].end <= id) ++k;
      if (k == runs.size()) break;
      if (runs[k].begin > id) continue;
      ++count;
      last = id == chunks - 1;
    }
    return units(count, last);
  }
};

/// Chunks of one rank, for ranks that own any, in order of rank (and so of node).
struct Owner {
  std::size_t node;
  std::vector<std::size_t> chunks;
};

std::vector<Owner> owners_of(std::span<const std::int64_t> rank_of, std::int64_t ranks, std::int64_t nodes) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), 0), place(static_cast<std::size_t>(ranks), 0);
  for (const std::int64_t rank : rank_of) ++counts[static_cast<std::size_t>(rank)];
  std::vector<Owner> owners;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (counts[r] == 0) continue;
    place[r] = owners.size();
    owners.push_back({static_cast<std::size_t>(rank * nodes / ranks), {}});
    owners.back().chunks.reserve(counts[r]);
  }
  for (std::size_t c = 0; c < rank_of.size(); ++c)
    owners[place[static_cast<std::size_t>(rank_of[c])]].chunks.push_back(c);
  return owners;
}

}  // namespace

// Runs are what it costs: ranks and nodes without chunks are never visited, and no chunk of a run one by one.
TrafficReport count_traffic(std::span<const NeedSets> needs, std::span<const std::int64_t> rank_of, std::int64_t ranks,
                            std::int64_t nodes, std::int64_t columns, std::int64_t chunk) {
  TrafficReport report;
  if (needs.empty()) return report;
  report.inbound.assign(static_cast<std::size_t>(nodes), 0);
  report.outbound.assign(static_cast<std::size_t>(nodes), 0);
  const Axis axis{static_cast<std::int64_t>(rank_of.size()), columns, chunk};
  const std::vector<Owner> owners = owners_of(rank_of, ranks, nodes);
  tile::RunUnion of_rank(axis.chunks), of_node(axis.chunks);
  Int128 inter_rows = 0, intra_rows = 0;
  std::vector<std::int64_t> steps(rank_of.size() + 1, 0);  // nodes that begin or cease to need a chunk
  for (const NeedSets& need : needs) {
    Units deliveries, crossings;
    for (std::int64_t b = 0; b < need.batch(); ++b) {
      for (std::size_t first = 0, k = 0; k < owners.size(); ++k) {
        of_rank.clear();
        for (const std::size_t c : owners[k].chunks) of_rank.add(need.row(b, static_cast<std::int64_t>(c)));
        const std::span<const ChunkRun> wanted = of_rank.merged();
        deliveries += axis.units(wanted) - axis.units_among(owners[k].chunks, wanted);
        of_node.add(wanted);
        const std::size_t node = owners[k].node;
        if (k + 1 < owners.size() && owners[k + 1].node == node) continue;
        const std::span<const ChunkRun> reaching = of_node.merged();
        Units remote = axis.units(reaching);
        for (; first <= k; ++first) {  // what lives on the node itself is no traffic
          const Units local = axis.units_among(owners[first].chunks, reaching);
          remote += Units{} - local;
          report.outbound[node] -= need.weight * local.chunks;
        }
        for (const ChunkRun& run : reaching) {
          steps[static_cast<std::size_t>(run.begin)] += need.weight;
          steps[static_cast<std::size_t>(run.end)] -= need.weight;
        }
        crossings += remote;
        report.inbound[node] += need.weight * remote.chunks;
        of_node.clear();
      }
    }
    report.traffic.inter_chunks += need.weight * crossings.chunks;
    inter_rows += need.weight * crossings.rows;
    report.traffic.intra_chunks += need.weight * (deliveries.chunks - crossings.chunks);
    intra_rows += need.weight * (deliveries.rows - crossings.rows);
  }
  constexpr std::int64_t kMostRows = std::numeric_limits<std::int64_t>::max();
  core::check(inter_rows <= kMostRows && intra_rows <= kMostRows,
              "the traffic is 2^63 rows or more; use smaller weights or shorter chunks");
  report.traffic.inter_rows = static_cast<std::int64_t>(inter_rows);
  report.traffic.intra_rows = static_cast<std::int64_t>(intra_rows);
  std::int64_t needing = 0;
  for (std::size_t c = 0; c < rank_of.size(); ++c) {
    needing += steps[c];
    report.outbound[static_cast<std::size_t>(rank_of[c] * nodes / ranks)] += needing;
  }
  return report;
}

std::vector<std::int64_t> key_rows(const PlanRecord& record) {
  std::vector<std::int64_t> most;
  if (record.needs.empty()) return most;
  most.assign(static_cast<std::size_t>(record.ranks), 0);
  const Axis axis{static_cast<std::int64_t>(record.assignment.size()), record.columns, record.chunk};
  const std::vector<Owner> owners = owners_of(record.assignment, record.ranks, record.nodes);
  tile::RunUnion wanted(axis.chunks);
  for (const NeedSets& need : record.needs) {
    for (const Owner& owner : owners) {
      std::int64_t rows = 0;
      for (std::int64_t b = 0; b < need.batch(); ++b) {
        wanted.clear();
        for (const std::size_t c : owner.chunks) wanted.add(need.row(b, static_cast<std::int64_t>(c)));
        rows += static_cast<std::int64_t>(axis.units(wanted.merged()).rows);
      }
      std::int64_t& held = most[static_cast<std::size_t>(record.assignment[owner.chunks.front()])];
      held = std::max(held, rows);
    }
  }
  return most;
}

}  // namespace flashmask::balancing
