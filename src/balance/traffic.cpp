#include "balance/traffic.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace flashmask::balancing {
namespace {

using Bits = std::vector<std::uint64_t>;

std::int64_t count(const Bits& bits) {
  std::int64_t n = 0;
  for (const std::uint64_t word : bits) n += std::popcount(word);
  return n;
}

/// Token rows of the chunks in `bits`.
std::int64_t rows_in(const Bits& bits, std::int64_t chunks, std::int64_t columns, std::int64_t chunk) {
  std::int64_t rows = count(bits) * chunk;
  const std::int64_t last = chunks - 1;
  if (chunks > 0 && (bits[static_cast<std::size_t>(last >> 6)] >> (last & 63)) & 1U) rows -= chunks * chunk - columns;
  return rows;
}

/// Chunks of one rank, for ranks that own any, in order of rank (and so of node).
struct Owner {
  std::size_t node;
  std::vector<std::size_t> chunks;
};

std::vector<Owner> owners_of(std::span<const std::int64_t> rank_of, std::int64_t ranks, std::int64_t nodes) {
  std::vector<std::size_t> order(rank_of.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return rank_of[a] < rank_of[b]; });
  std::vector<Owner> owners;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || rank_of[order[i]] != rank_of[order[i - 1]]) {
      owners.push_back({static_cast<std::size_t>(rank_of[order[i]] * nodes / ranks), {}});
    }
    owners.back().chunks.push_back(order[i]);
  }
  return owners;
}

void set(Bits& bits, std::size_t c) {
  bits[c >> 6] |= std::uint64_t{1} << (c & 63);
}
void clear(Bits& bits, std::size_t c) {
  bits[c >> 6] &= ~(std::uint64_t{1} << (c & 63));
}

}  // namespace

// The cost is bounded by the size of the need sets: ranks and nodes without chunks are never visited.
TrafficReport count_traffic(std::span<const NeedSets> needs, std::span<const std::int64_t> rank_of, std::int64_t ranks,
                            std::int64_t nodes, std::int64_t columns, std::int64_t chunk) {
  TrafficReport report;
  if (needs.empty()) return report;
  report.inbound.assign(static_cast<std::size_t>(nodes), 0);
  report.outbound.assign(static_cast<std::size_t>(nodes), 0);
  const std::int64_t chunks = static_cast<std::int64_t>(rank_of.size());
  const std::vector<Owner> owners = owners_of(rank_of, ranks, nodes);
  for (const NeedSets& need : needs) {
    const std::size_t words = static_cast<std::size_t>(need.words);
    Bits wanted(words), remote(words), local(words);
    for (std::int64_t b = 0; b < need.batch; ++b) {
      for (std::size_t k = 0; k < owners.size(); ++k) {
        const std::size_t node = owners[k].node;
        if (k == 0 || owners[k - 1].node != node) {
          std::fill(remote.begin(), remote.end(), 0);
          std::fill(local.begin(), local.end(), 0);
        }
        std::fill(wanted.begin(), wanted.end(), 0);
        for (const std::size_t c : owners[k].chunks) {
          const auto row = need.row(b, static_cast<std::int64_t>(c));
          for (std::size_t w = 0; w < words; ++w) wanted[w] |= row[w];
          set(local, c);
        }
        for (const std::size_t c : owners[k].chunks) clear(wanted, c);
        report.traffic.intra_chunks += need.weight * count(wanted);  // every delivery; crossings go off below
        report.traffic.intra_rows += need.weight * rows_in(wanted, chunks, columns, chunk);
        for (std::size_t w = 0; w < words; ++w) remote[w] |= wanted[w];
        if (k + 1 < owners.size() && owners[k + 1].node == node) continue;
        for (std::size_t w = 0; w < words; ++w) {
          remote[w] &= ~local[w];
          for (std::uint64_t bits = remote[w]; bits != 0; bits &= bits - 1) {
            const std::size_t c = 64 * w + static_cast<std::size_t>(std::countr_zero(bits));
            report.outbound[static_cast<std::size_t>(rank_of[c] * nodes / ranks)] += need.weight;
          }
        }
        const std::int64_t crossings = need.weight * count(remote);
        const std::int64_t rows = need.weight * rows_in(remote, chunks, columns, chunk);
        report.inbound[node] += crossings;
        report.traffic.inter_chunks += crossings;
        report.traffic.inter_rows += rows;
        report.traffic.intra_chunks -= crossings;
        report.traffic.intra_rows -= rows;
      }
    }
  }
  return report;
}

std::vector<std::int64_t> key_rows(const PlanRecord& record) {
  std::vector<std::int64_t> most;
  if (record.needs.empty()) return most;
  most.assign(static_cast<std::size_t>(record.ranks), 0);
  const std::int64_t chunks = static_cast<std::int64_t>(record.assignment.size());
  const std::vector<Owner> owners = owners_of(record.assignment, record.ranks, record.nodes);
  for (const NeedSets& need : record.needs) {
    for (const Owner& owner : owners) {
      std::int64_t rows = 0;
      for (std::int64_t b = 0; b < need.batch; ++b) {
        Bits wanted(static_cast<std::size_t>(need.words), 0);
        for (const std::size_t c : owner.chunks) {
          const auto row = need.row(b, static_cast<std::int64_t>(c));
          for (std::size_t w = 0; w < row.size(); ++w) wanted[w] |= row[w];
        }
        rows += rows_in(wanted, chunks, record.columns, record.chunk);
      }
      std::int64_t& held = most[static_cast<std::size_t>(record.assignment[owner.chunks.front()])];
      held = std::max(held, rows);
    }
  }
  return most;
}

}  // namespace flashmask::balancing
