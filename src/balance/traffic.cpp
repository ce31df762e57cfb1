#include "balance/traffic.hpp"

#include <bit>

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
  if ((bits[static_cast<std::size_t>(last >> 6)] >> (last & 63)) & 1U) rows -= chunks * chunk - columns;
  return rows;
}

}  // namespace

TrafficReport count_traffic(std::span<const NeedSets> needs, std::span<const std::int64_t> rank_of, std::int64_t ranks,
                            std::int64_t nodes, std::int64_t columns, std::int64_t chunk) {
  TrafficReport report;
  if (needs.empty()) return report;
  report.inbound.assign(static_cast<std::size_t>(nodes), 0);
  report.outbound.assign(static_cast<std::size_t>(nodes), 0);
  const std::int64_t chunks = static_cast<std::int64_t>(rank_of.size());
  const auto node_of = [&](std::int64_t rank) { return static_cast<std::size_t>(rank * nodes / ranks); };
  std::vector<std::vector<std::int64_t>> owned(static_cast<std::size_t>(ranks));
  for (std::int64_t c = 0; c < chunks; ++c)
    owned[static_cast<std::size_t>(rank_of[static_cast<std::size_t>(c)])].push_back(c);
  for (const NeedSets& need : needs) {
    const std::size_t words = static_cast<std::size_t>(need.words);
    for (std::int64_t b = 0; b < need.batch; ++b) {
      std::vector<Bits> at_node(static_cast<std::size_t>(nodes), Bits(words, 0));
      std::int64_t deliveries = 0, delivered_rows = 0;
      for (std::int64_t r = 0; r < ranks; ++r) {
        Bits wanted(words, 0);
        for (const std::int64_t c : owned[static_cast<std::size_t>(r)]) {
          const auto row = need.row(b, c);
          for (std::size_t w = 0; w < words; ++w) wanted[w] |= row[w];
        }
        for (const std::int64_t c : owned[static_cast<std::size_t>(r)]) {
          wanted[static_cast<std::size_t>(c >> 6)] &= ~(std::uint64_t{1} << (c & 63));
        }
        deliveries += count(wanted);
        delivered_rows += rows_in(wanted, chunks, columns, chunk);
        for (std::size_t w = 0; w < words; ++w) at_node[node_of(r)][w] |= wanted[w];
      }
      std::int64_t crossings = 0, crossing_rows = 0;
      for (std::size_t n = 0; n < at_node.size(); ++n) {
        Bits remote = at_node[n];
        for (std::int64_t c = 0; c < chunks; ++c) {
          const std::size_t home = node_of(rank_of[static_cast<std::size_t>(c)]);
          const std::uint64_t bit = std::uint64_t{1} << (c & 63);
          std::uint64_t& word = remote[static_cast<std::size_t>(c >> 6)];
          if (home == n) {
            word &= ~bit;
          } else if (word & bit) {
            report.outbound[home] += need.weight;
          }
        }
        const std::int64_t in = count(remote);
        report.inbound[n] += need.weight * in;
        crossings += in;
        crossing_rows += rows_in(remote, chunks, columns, chunk);
      }
      report.traffic.inter_chunks += need.weight * crossings;
      report.traffic.inter_rows += need.weight * crossing_rows;
      report.traffic.intra_chunks += need.weight * (deliveries - crossings);
      report.traffic.intra_rows += need.weight * (delivered_rows - crossing_rows);
    }
  }
  return report;
}

}  // namespace flashmask::balancing
