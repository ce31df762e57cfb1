#include "balance/node_traffic.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace flashmask::balancing {
namespace {

/// Adds `step` to counts[0, n) and returns how many entries came to (step > 0) or left (step < 0) use among the remote.
/// Plain loops over 16-bit words, which compilers vectorise.
template <int kStep>
std::int64_t shift_counts(std::uint16_t* counts, const std::uint16_t* remote, std::int32_t n) {
  std::uint32_t changed = 0;
  for (std::int32_t i = 0; i < n; ++i) {
    if constexpr (kStep > 0) {
      changed += static_cast<std::uint16_t>(counts[i] == 0 ? remote[i] : 0);
      counts[i] = static_cast<std::uint16_t>(counts[i] + 1);
    } else {
      counts[i] = static_cast<std::uint16_t>(counts[i] - 1);
      changed += static_cast<std::uint16_t>(counts[i] == 0 ? remote[i] : 0);
    }
  }
  return changed;
}

}  // namespace

NodeTraffic::NodeTraffic(std::span<const NeedSets> needs, std::int64_t nodes, std::span<const std::int32_t> node_of)
    : chunks_(node_of.size()),
      words_((node_of.size() + 63) / 64),
      node_of_(node_of.begin(), node_of.end()),
      owned_(static_cast<std::size_t>(nodes) * words_, 0),
      inbound_(static_cast<std::size_t>(nodes), 0) {
  for (const NeedSets& need : needs) {
    for (std::int64_t b = 0; b < need.batch(); ++b) add_layer(need, b);
  }
  std::vector<std::vector<std::size_t>> chunks_of(static_cast<std::size_t>(nodes));
  for (std::size_t c = 0; c < chunks_; ++c) {
    const auto node = static_cast<std::size_t>(node_of_[c]);
    chunks_of[node].push_back(c);
    flip(node, static_cast<std::int32_t>(c), static_cast<std::int32_t>(c) + 1);
  }
  if (!counted_.empty()) remote_.assign(static_cast<std::size_t>(nodes) * chunks_, 1);
  for (Counted& layer : counted_) layer.counts.resize(static_cast<std::size_t>(nodes) * chunks_);
  for (std::size_t node = 0; node < chunks_of.size(); ++node) {
    const std::vector<std::size_t>& own = chunks_of[node];
    for (const Intervals& layer : intervals_) {  // both ends ascend, so only what lies behind the last one is new
      std::int32_t known = 0;
      for (const std::size_t c : own) {
        const auto [begin, end] = layer.runs[c];
        inbound_[node] += layer.weight * (std::max(0, end - std::max(begin, known)) - 1);
        known = end;
      }
    }
    for (const std::size_t c : own) {
      if (!counted_.empty()) remote_[node * chunks_ + c] = 0;
    }
    for (Counted& layer : counted_) count_node(layer, node, own);
  }
}

void NodeTraffic::add_layer(const NeedSets& need, std::int64_t batch) {
  std::vector<ChunkRun> runs;
  for (std::size_t c = 0; c < chunks_; ++c) {
    const auto row = need.row(batch, static_cast<std::int64_t>(c));
    const auto id = static_cast<std::int32_t>(c);
    if (row.size() != 1 || row[0].begin > id || id >= row[0].end ||
        (c > 0 && (runs.back().begin > row[0].begin || runs.back().end > row[0].end))) {
      counted_.push_back({need.weight, batch, &need.matrix(), {}});
      return;
    }
    runs.push_back(row[0]);
  }
  intervals_.push_back({need.weight, std::move(runs)});
}

/// How many of `own` need each chunk, all at once: moved there one by one they would cost the length of their needs.
void NodeTraffic::count_node(Counted& layer, std::size_t node, std::span<const std::size_t> own) {
  std::vector<std::int32_t> steps(chunks_ + 1, 0);  // needs that begin less those that end
  for (const std::size_t c : own) {
    for (const ChunkRun& run : layer.needs->row(layer.batch, static_cast<std::int64_t>(c))) {
      ++steps[static_cast<std::size_t>(run.begin)];
      --steps[static_cast<std::size_t>(run.end)];
    }
  }
  std::int32_t now = 0;
  std::int64_t remote = 0;
  for (std::size_t c = 0; c < chunks_; ++c) {
    now += steps[c];
    layer.counts[node * chunks_ + c] = static_cast<std::uint16_t>(now);
    remote += now != 0 && remote_[node * chunks_ + c] != 0;
  }
  inbound_[node] += layer.weight * remote;
}

/// The node's last chunk before `begin` (-1: none) and its first at or after `end` (chunks: none).
ChunkRun NodeTraffic::neighbours(std::size_t node, std::int32_t begin, std::int32_t end) const {
  const std::uint64_t* const bits = &owned_[node * words_];
  ChunkRun found{-1, static_cast<std::int32_t>(chunks_)};
  if (begin > 0) {
    std::size_t w = static_cast<std::size_t>(begin - 1) >> 6;
    std::uint64_t word = bits[w] & (~std::uint64_t{0} >> (63 - ((begin - 1) & 63)));
    while (word == 0 && w > 0) word = bits[--w];
    if (word != 0) found.begin = static_cast<std::int32_t>(64 * w) + 63 - std::countl_zero(word);
  }
  if (end < static_cast<std::int32_t>(chunks_)) {
    std::size_t w = static_cast<std::size_t>(end) >> 6;
    std::uint64_t word = bits[w] & (~std::uint64_t{0} << (end & 63));
    while (word == 0 && w + 1 < words_) word = bits[++w];
    if (word != 0) found.end = static_cast<std::int32_t>(64 * w) + std::countr_zero(word);
  }
  return found;
}

/// What the node's inbound traffic changes by when chunks [begin, end) come, or loses when they leave. Both ends
/// ascend, so of the other chunks of the node only the two neighbours can cover what these need. All of it is one
/// interval: the needs of consecutive chunks touch.
std::int64_t NodeTraffic::gain(std::size_t node, std::int32_t begin, std::int32_t end) const {
  const ChunkRun near = neighbours(node, begin, end);
  std::int64_t sum = 0;
  for (const Intervals& layer : intervals_) {
    std::int32_t from = layer.runs[static_cast<std::size_t>(begin)].begin;
    std::int32_t to = layer.runs[static_cast<std::size_t>(end) - 1].end;
    if (near.begin >= 0) from = std::max(from, layer.runs[static_cast<std::size_t>(near.begin)].end);
    if (near.end < static_cast<std::int32_t>(chunks_)) {
      to = std::min(to, layer.runs[static_cast<std::size_t>(near.end)].begin);
    }
    sum += layer.weight * (std::max(0, to - from) - (end - begin));
  }
  return sum;
}

/// Chunks [begin, end) come to the node or leave it.
void NodeTraffic::flip(std::size_t node, std::int32_t begin, std::int32_t end) {
  std::uint64_t* const bits = &owned_[node * words_];
  std::size_t w = static_cast<std::size_t>(begin) >> 6;
  const std::size_t last = static_cast<std::size_t>(end - 1) >> 6;
  std::uint64_t mask = ~std::uint64_t{0} << (begin & 63);
  for (; w < last; ++w, mask = ~std::uint64_t{0}) bits[w] ^= mask;
  bits[w] ^= mask & (~std::uint64_t{0} >> (63 - ((end - 1) & 63)));
}

template <int kStep>
void NodeTraffic::change_counts(Counted& layer, std::size_t node, std::size_t chunk) {
  const std::size_t row = node * chunks_;
  std::int64_t changed = 0;
  for (const ChunkRun& run : layer.needs->row(layer.batch, static_cast<std::int64_t>(chunk))) {
    const std::size_t begin = row + static_cast<std::size_t>(run.begin);
    changed += shift_counts<kStep>(&layer.counts[begin], &remote_[begin], run.end - run.begin);
  }
  // The chunk itself becomes remote where it left and local where it came.
  changed -= layer.counts[row + chunk] != 0;
  inbound_[node] += kStep * layer.weight * changed;
}

/// Chunks [begin, end) come to (kStep = 1) or leave (-1) the node.
template <int kStep>
void NodeTraffic::change(std::size_t node, std::int32_t begin, std::int32_t end) {
  flip(node, begin, end);
  for (std::int32_t c = begin; c < end && !counted_.empty(); ++c) {
    const std::size_t chunk = static_cast<std::size_t>(c);
    for (Counted& layer : counted_) change_counts<kStep>(layer, node, chunk);
    remote_[node * chunks_ + chunk] = kStep > 0 ? 0 : 1;
  }
  if (!intervals_.empty()) inbound_[node] += kStep * gain(node, begin, end);
}

void NodeTraffic::move(std::int32_t chunk, std::int32_t to) {
  std::int32_t& node = node_of_[static_cast<std::size_t>(chunk)];
  change<-1>(static_cast<std::size_t>(node), chunk, chunk + 1);
  change<1>(static_cast<std::size_t>(to), chunk, chunk + 1);
  node = to;
}

void NodeTraffic::exchange(std::int32_t x, std::int32_t y, std::int32_t length) {
  const std::int32_t a = node_of(x), b = node_of(y);
  change<-1>(static_cast<std::size_t>(a), x, x + length);
  change<-1>(static_cast<std::size_t>(b), y, y + length);
  change<1>(static_cast<std::size_t>(a), y, y + length);
  change<1>(static_cast<std::size_t>(b), x, x + length);
  std::fill_n(node_of_.begin() + x, length, b);
  std::fill_n(node_of_.begin() + y, length, a);
}

void NodeTraffic::flip_proposed() {
  const auto& [x, y, length, a, b, inbound_a, inbound_b] = proposed_;
  flip(a, x, x + length);
  flip(b, y, y + length);
  flip(a, y, y + length);
  flip(b, x, x + length);
}

void NodeTraffic::propose(std::int32_t x, std::int32_t y, std::int32_t length) {
  const std::size_t a = static_cast<std::size_t>(node_of(x)), b = static_cast<std::size_t>(node_of(y));
  proposed_ = {x, y, length, a, b, inbound_[a], inbound_[b]};
  if (!only_intervals()) return exchange(x, y, length);
  const std::int32_t x_end = x + length, y_end = y + length;
  inbound_[a] -= gain(a, x, x_end);
  inbound_[b] -= gain(b, y, y_end);
  flip_proposed();  // neighbours lie outside of a stretch, so what comes may be there already
  inbound_[a] += gain(a, y, y_end);
  inbound_[b] += gain(b, x, x_end);
}

void NodeTraffic::keep() {
  if (!only_intervals()) return;
  std::fill_n(node_of_.begin() + proposed_.x, proposed_.length, static_cast<std::int32_t>(proposed_.b));
  std::fill_n(node_of_.begin() + proposed_.y, proposed_.length, static_cast<std::int32_t>(proposed_.a));
}

void NodeTraffic::undo() {
  if (!only_intervals()) return exchange(proposed_.x, proposed_.y, proposed_.length);
  flip_proposed();
  inbound_[proposed_.a] = proposed_.inbound_a;
  inbound_[proposed_.b] = proposed_.inbound_b;
}

std::int64_t NodeTraffic::worst() const {
  return *std::max_element(inbound_.begin(), inbound_.end());
}

}  // namespace flashmask::balancing
