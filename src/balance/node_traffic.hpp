// Inbound traffic of every node, kept up to date while chunks move between nodes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

/// Counts, for every node and (mask, batch row, chunk), how many chunks of the node need it. A move of one chunk costs
/// the length of its need set, touched as runs.
class NodeTraffic {
 public:
  /// `needs` are borrowed; `node_of` is the node of every chunk. At most 65535 chunks a node.
  NodeTraffic(std::span<const NeedSets> needs, std::int64_t nodes, std::span<const std::int32_t> node_of);

  void move(std::int32_t chunk, std::int32_t to);
  [[nodiscard]] std::int32_t node_of(std::int32_t chunk) const { return node_of_[static_cast<std::size_t>(chunk)]; }
  [[nodiscard]] std::span<const std::int32_t> nodes() const { return node_of_; }
  /// Weighted (mask, batch row, chunk) units that node n must receive.
  [[nodiscard]] std::int64_t inbound(std::int64_t n) const { return inbound_[static_cast<std::size_t>(n)]; }
  [[nodiscard]] std::int64_t worst() const;

 private:
  struct Run {
    std::int32_t begin, end;
  };
  struct Layer {
    std::int64_t weight;
    std::vector<std::size_t> offsets;  // by chunk, into runs
    std::vector<Run> runs;
    std::vector<std::uint16_t> counts;  // [node][chunk]
  };
  void build_runs(const NeedSets& need, std::int64_t batch, Layer& layer) const;

  std::size_t chunks_;
  std::vector<Layer> layers_;
  std::vector<std::int32_t> node_of_;
  std::vector<std::uint16_t> remote_;  // [node][chunk]: 1 where the chunk lives elsewhere
  std::vector<std::int64_t> inbound_;
};

}  // namespace flashmask::balancing
