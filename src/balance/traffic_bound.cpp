#include "balance/traffic_bound.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace flashmask::balancing {
namespace {

std::int64_t count(std::span<const ChunkRun> runs) {
  std::int64_t chunks = 0;
  for (const ChunkRun& run : runs) chunks += run.end - run.begin;
  return chunks;
}

/// What the largest node can hold.
struct Node {
  std::int64_t count = 0, capacity = 0;
};

/// Row chunks whose need sets are nested, smallest first.
class Chain {
 public:
  Chain(const Instance& in, const NeedSets& need, std::int64_t batch, std::vector<std::int64_t> rows, Node node,
        std::int64_t nodes)
      : node_(node), nodes_(nodes) {
    const auto load = [&](std::int64_t c) { return in.loads[static_cast<std::size_t>(c)]; };
    std::vector<bool> above(in.loads.size(), false);
    std::vector<std::int64_t> below;  // what the largest set holds, lightest first
    for (const ChunkRun& run : need.row(batch, rows.back())) {
      for (std::int64_t j = run.begin; j < run.end; ++j) below.push_back(j);
    }
    largest_ = static_cast<std::int64_t>(below.size());
    std::stable_sort(below.begin(), below.end(), [&](std::int64_t a, std::int64_t b) { return load(a) < load(b); });
    Step step;
    for (std::size_t i = rows.size(); i-- > 0;) {
      step.size = count(need.row(batch, rows[i]));
      step.load += load(rows[i]);
      step.rows += 1;
      step.inside += need.needs(batch, rows.back(), rows[i]);
      above[static_cast<std::size_t>(rows[i])] = true;
      step.lightest.assign(1, 0);
      for (const std::int64_t c : below) {
        if (!above[static_cast<std::size_t>(c)]) step.lightest.push_back(step.lightest.back() + load(c));
      }
      steps_.push_back(step);
    }
    // reach_[j]: however the rows are dealt, j + 1 nodes own a row that needs as much as this.
    for (std::int64_t j = 0; j < nodes; ++j) {
      std::int64_t size = 0;
      for (const Step& s : steps_) {
        if (s.load > Int128{j} * node.capacity || s.rows > j * node.count) {
          size = s.size;
          break;
        }
      }
      reach_.push_back(size);
    }
  }

  [[nodiscard]] std::int64_t largest() const { return largest_; }

  /// Whether some top of the chain cannot be dealt to any number of nodes with at most `inbound` each.
  [[nodiscard]] bool refutes(std::int64_t inbound) const {
    return std::any_of(steps_.begin(), steps_.end(), [&](const Step& s) {
      std::int64_t owned = 0;  // chunks of the largest need set that the first q nodes own at least
      for (std::int64_t q = 1; q <= nodes_; ++q) {
        owned += std::max<std::int64_t>(0, std::max(reach_[static_cast<std::size_t>(q - 1)], s.size) - inbound);
        if (possible(s, q, owned)) return false;
      }
      return true;
    });
  }

 private:
  /// The top of the chain: its last `rows` rows, all of which need the `size` chunks of the first of them.
  struct Step {
    std::int64_t size = 0, load = 0, rows = 0;
    std::int64_t inside = 0;             // rows that are in the largest need set themselves
    std::vector<std::int64_t> lightest;  // sums of the other chunks of the largest need set
  };

  /// Whether exactly q nodes could own the rows of `s` and `owned` chunks of the largest need set.
  [[nodiscard]] bool possible(const Step& s, std::int64_t q, std::int64_t owned) const {
    const std::int64_t more = std::max<std::int64_t>(0, owned - s.inside);
    if (more >= static_cast<std::int64_t>(s.lightest.size())) return false;
    return s.rows + more <= q * node_.count &&
           s.load + Int128{s.lightest[static_cast<std::size_t>(more)]} <= Int128{q} * node_.capacity;
  }

  Node node_;
  std::int64_t nodes_, largest_ = 0;
  std::vector<Step> steps_;  // fewest rows first
  std::vector<std::int64_t> reach_;
};

/// Rows by the first chunk they need; of each group a chain of nested need sets.
std::vector<std::vector<std::int64_t>> nested_rows(const NeedSets& need, std::int64_t batch) {
  struct Row {
    std::int64_t size, chunk;
  };
  std::map<std::int64_t, std::vector<Row>> groups;
  for (std::int64_t c = 0; c < need.chunks(); ++c) {
    const auto row = need.row(batch, c);
    if (!row.empty()) groups[row.front().begin].push_back({count(row), c});
  }
  std::vector<std::vector<std::int64_t>> chains;
  for (auto& [first, rows] : groups) {
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.size < b.size; });
    std::vector<std::int64_t>& chain = chains.emplace_back();
    for (const Row& row : rows) {
      const auto includes = [&](std::int64_t smaller) {
        const auto a = need.row(batch, row.chunk), b = need.row(batch, smaller);
        auto outer = a.begin();
        return std::all_of(b.begin(), b.end(), [&](const ChunkRun& run) {
          while (outer != a.end() && outer->end < run.end) ++outer;
          return outer != a.end() && outer->begin <= run.begin;
        });
      };
      if (chain.empty() || includes(chain.back())) chain.push_back(row.chunk);
    }
  }
  return chains;
}

}  // namespace

std::int64_t inbound_lower_bound(const Instance& in, std::span<const NeedSets> needs, std::int64_t nodes,
                                 std::int64_t target) {
  std::vector<Node> all(static_cast<std::size_t>(nodes));
  for (std::int64_t r = 0; r < in.ranks(); ++r) {
    Node& node = all[static_cast<std::size_t>(r * nodes / in.ranks())];
    node.count += in.counts[static_cast<std::size_t>(r)];
    node.capacity += in.capacity(r, target);
  }
  Node largest;
  for (const Node& node : all) {
    largest.count = std::max(largest.count, node.count);
    largest.capacity = std::max(largest.capacity, node.capacity);
  }
  std::int64_t best = 0;
  for (const NeedSets& need : needs) {
    for (std::int64_t b = 0; b < need.batch(); ++b) {
      for (const std::vector<std::int64_t>& rows : nested_rows(need, b)) {
        const Chain chain(in, need, b, rows, largest, nodes);
        std::int64_t low = 0, high = chain.largest();
        while (low < high) {
          const std::int64_t middle = low + (high - low) / 2;
          if (chain.refutes(middle)) {
            low = middle + 1;
          } else {
            high = middle;
          }
        }
        best = std::max(best, need.weight * low);
      }
    }
  }
  return best;
}

}  // namespace flashmask::balancing
