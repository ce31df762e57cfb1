#include "balance/node_traffic.hpp"

#include <algorithm>
#include <bit>

namespace flashmask::balancing {
namespace {

/// Adds `step` to counts[0, n) and returns how many entries came to (step > 0) or left (step < 0) use among the remote.
/// Plain loops over 16-bit words, which compilers vectorise.
std::int64_t add_one(std::uint16_t* counts, const std::uint16_t* remote, std::int32_t n) {
  std::uint32_t changed = 0;
  for (std::int32_t i = 0; i < n; ++i) {
    changed += static_cast<std::uint16_t>(counts[i] == 0 ? remote[i] : 0);
    counts[i] = static_cast<std::uint16_t>(counts[i] + 1);
  }
  return changed;
}
std::int64_t take_one(std::uint16_t* counts, const std::uint16_t* remote, std::int32_t n) {
  std::uint32_t changed = 0;
  for (std::int32_t i = 0; i < n; ++i) {
    counts[i] = static_cast<std::uint16_t>(counts[i] - 1);
    changed += static_cast<std::uint16_t>(counts[i] == 0 ? remote[i] : 0);
  }
  return changed;
}

}  // namespace

NodeTraffic::NodeTraffic(std::span<const NeedSets> needs, std::int64_t nodes, std::span<const std::int32_t> node_of)
    : chunks_(node_of.size()),
      node_of_(node_of.begin(), node_of.end()),
      remote_(static_cast<std::size_t>(nodes) * chunks_, 1),
      inbound_(static_cast<std::size_t>(nodes), 0) {
  for (std::size_t c = 0; c < chunks_; ++c) remote_[static_cast<std::size_t>(node_of[c]) * chunks_ + c] = 0;
  for (const NeedSets& need : needs) {
    for (std::int64_t b = 0; b < need.batch; ++b) {
      Layer& layer = layers_.emplace_back();
      layer.weight = need.weight;
      layer.counts.assign(static_cast<std::size_t>(nodes) * chunks_, 0);
      build_runs(need, b, layer);
      for (std::size_t c = 0; c < chunks_; ++c) {
        const std::size_t row = static_cast<std::size_t>(node_of[c]) * chunks_;
        for (std::size_t k = layer.offsets[c]; k < layer.offsets[c + 1]; ++k) {
          const auto [begin, end] = layer.runs[k];
          inbound_[static_cast<std::size_t>(node_of[c])] +=
              layer.weight * add_one(&layer.counts[row + static_cast<std::size_t>(begin)],
                                     &remote_[row + static_cast<std::size_t>(begin)], end - begin);
        }
      }
    }
  }
}

void NodeTraffic::build_runs(const NeedSets& need, std::int64_t batch, Layer& layer) const {
  layer.offsets.push_back(0);
  for (std::size_t c = 0; c < chunks_; ++c) {
    const auto row = need.row(batch, static_cast<std::int64_t>(c));
    const std::size_t first = layer.runs.size();
    for (std::size_t w = 0; w < row.size(); ++w) {
      std::uint64_t bits = row[w];
      while (bits != 0) {
        const int low = std::countr_zero(bits);
        const int length = std::countr_one(bits >> low);
        const std::int32_t begin = static_cast<std::int32_t>(64 * w) + low;
        if (layer.runs.size() > first && layer.runs.back().end == begin) {
          layer.runs.back().end = begin + length;
        } else {
          layer.runs.push_back({begin, begin + length});
        }
        bits = low + length == 64 ? 0 : bits & (~std::uint64_t{0} << (low + length));
      }
    }
    layer.offsets.push_back(layer.runs.size());
  }
}

void NodeTraffic::move(std::int32_t chunk, std::int32_t to) {
  const std::size_t c = static_cast<std::size_t>(chunk);
  const std::size_t from = static_cast<std::size_t>(node_of_[c]);
  const std::size_t target = static_cast<std::size_t>(to);
  const std::size_t from_row = from * chunks_, to_row = target * chunks_;
  for (Layer& layer : layers_) {
    std::int64_t left = 0, came = 0;
    for (std::size_t k = layer.offsets[c]; k < layer.offsets[c + 1]; ++k) {
      const std::size_t begin = static_cast<std::size_t>(layer.runs[k].begin);
      const std::int32_t n = layer.runs[k].end - layer.runs[k].begin;
      left += take_one(&layer.counts[from_row + begin], &remote_[from_row + begin], n);
      came += add_one(&layer.counts[to_row + begin], &remote_[to_row + begin], n);
    }
    // The chunk itself becomes remote where it left and local where it came.
    left -= layer.counts[from_row + c] != 0;
    came -= layer.counts[to_row + c] != 0;
    inbound_[from] -= layer.weight * left;
    inbound_[target] += layer.weight * came;
  }
  remote_[from_row + c] = 1;
  remote_[to_row + c] = 0;
  node_of_[c] = to;
}

std::int64_t NodeTraffic::worst() const {
  return *std::max_element(inbound_.begin(), inbound_.end());
}

}  // namespace flashmask::balancing
