// Inbound traffic of every node, kept up to date while chunks move between nodes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

/// Inbound traffic under moves. A mask whose chunks need one interval each, with both ends ascending and the chunk
/// inside (causal, windows, documents, prefix-LM: all but shared prefixes and the like), costs a look at the two
/// neighbours a stretch has on the node, however long the need sets. Any other mask counts, for every node and chunk,
/// how many chunks of the node need it; there a move of one chunk costs the length of its need set, touched as runs.
class NodeTraffic {
 public:
  /// `needs` are borrowed; `node_of` is the node of every chunk. At most 65535 chunks a node.
  NodeTraffic(std::span<const NeedSets> needs, std::int64_t nodes, std::span<const std::int32_t> node_of);

  void move(std::int32_t chunk, std::int32_t to);
  /// Chunks [x, x + length), all on one node, and [y, y + length), all on another, change places. Doing it again
  /// undoes it.
  void exchange(std::int32_t x, std::int32_t y, std::int32_t length);
  /// The same on approval: the inbound counts are those after the exchange, and `keep` or `undo` must follow before
  /// anything else is asked. Most exchanges that a search tries are refused, and taking one back is cheap here.
  void propose(std::int32_t x, std::int32_t y, std::int32_t length);
  void keep();
  void undo();
  [[nodiscard]] std::int32_t node_of(std::int32_t chunk) const { return node_of_[static_cast<std::size_t>(chunk)]; }
  [[nodiscard]] std::span<const std::int32_t> nodes() const { return node_of_; }
  /// How many consecutive chunks from `chunk` on (ahead) or down to it (behind) live on its node; never more than
  /// `most`.
  [[nodiscard]] std::int32_t ahead(std::int32_t chunk, std::int32_t most) const {
    const std::uint64_t* const bits = &owned_[static_cast<std::size_t>(node_of(chunk)) * words_];
    std::size_t w = static_cast<std::size_t>(chunk) >> 6;
    int room = 64 - (chunk & 63);
    int run = std::countr_one(bits[w] >> (chunk & 63));
    std::int32_t length = run;
    while (run == room && length < most && ++w < words_) {
      room = 64;
      run = std::countr_one(bits[w]);
      length += run;
    }
    return std::min(length, most);
  }
  [[nodiscard]] std::int32_t behind(std::int32_t chunk, std::int32_t most) const {
    const std::uint64_t* const bits = &owned_[static_cast<std::size_t>(node_of(chunk)) * words_];
    std::size_t w = static_cast<std::size_t>(chunk) >> 6;
    int room = (chunk & 63) + 1;
    int run = std::countl_one(bits[w] << (64 - room));
    std::int32_t length = run;
    while (run == room && length < most && w > 0) {
      room = 64;
      run = std::countl_one(bits[--w]);
      length += run;
    }
    return std::min(length, most);
  }
  /// Weighted (mask, batch row, chunk) units that node n must receive.
  [[nodiscard]] std::int64_t inbound(std::int64_t n) const { return inbound_[static_cast<std::size_t>(n)]; }
  [[nodiscard]] std::int64_t worst() const;
  /// Whether no mask has to be counted chunk by chunk.
  [[nodiscard]] bool only_intervals() const { return counted_.empty(); }

 private:
  struct Counted {
    std::int64_t weight, batch;
    const NeedRuns* needs;
    std::vector<std::uint16_t> counts;  // [node][chunk]
  };
  struct Intervals {
    std::int64_t weight;
    std::vector<ChunkRun> runs;  // one a chunk
  };
  void add_layer(const NeedSets& need, std::int64_t batch);
  void count_node(Counted& layer, std::size_t node, std::span<const std::size_t> own);
  struct Proposal {
    std::int32_t x = 0, y = 0, length = 0;
    std::size_t a = 0, b = 0;  // nodes
    std::int64_t inbound_a = 0, inbound_b = 0;
  };
  [[nodiscard]] ChunkRun neighbours(std::size_t node, std::int32_t begin, std::int32_t end) const;
  [[nodiscard]] std::int64_t gain(std::size_t node, std::int32_t begin, std::int32_t end) const;
  void flip(std::size_t node, std::int32_t begin, std::int32_t end);
  void flip_proposed();
  template <int kStep>
  void change(std::size_t node, std::int32_t begin, std::int32_t end);
  template <int kStep>
  void change_counts(Counted& layer, std::size_t node, std::size_t chunk);

  std::size_t chunks_, words_;
  std::vector<Intervals> intervals_;
  std::vector<Counted> counted_;
  std::vector<std::int32_t> node_of_;
  std::vector<std::uint64_t> owned_;   // [node][words]: bits of the node's chunks
  std::vector<std::uint16_t> remote_;  // [node][chunk]: 1 where the chunk lives elsewhere; only for counted masks
  std::vector<std::int64_t> inbound_;
  Proposal proposed_;
};

}  // namespace flashmask::balancing
