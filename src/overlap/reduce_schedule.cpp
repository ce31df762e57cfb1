#include <algorithm>
#include <map>

#include "overlap/schedule.hpp"

namespace flashmask::overlap {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

class ReduceBuilder {
 public:
  ReduceBuilder(const Owners& owners, const RankNeeds& needs, const GatherSchedule& gather,
                const ScheduleOptions& options)
      : owners_(owners), needs_(needs), gather_(gather), options_(options) {
    out_.sends.resize(at(owners.ranks));
    out_.combines.resize(at(owners.ranks));
    out_.inbound.resize(at(owners.ranks));
    out_.visits.resize(at(owners.ranks));
  }

  ReduceSchedule build() {
    order_visits();
    for (std::int32_t b = 0; b < needs_.batch(); ++b) {
      for (std::int32_t c = 0; c < owners_.chunks(); ++c) route(b, c);
    }
    order();
    return std::move(out_);
  }

 private:
  std::int32_t add(std::int32_t b, std::int32_t c, std::int32_t from, std::int32_t to) {
    const Link link = owners_.node_of(from) == owners_.node_of(to) ? Link::inside : Link::between;
    auto& inbound = out_.inbound[at(to)];
    const auto number = static_cast<std::int32_t>(out_.transfers.size());
    out_.transfers.push_back({b, c, from, to, link, false, static_cast<std::int32_t>(inbound.size())});
    inbound.push_back(number);
    return number;
  }

  void route(std::int32_t b, std::int32_t c) {
    const std::int32_t owner = owners_.rank_of_chunk[at(c)];
    const auto& ranks = needs_.ranks_needing(b, c);
    if (ranks.empty()) return;
    Combine at_owner{b, c, true, {}, -1};
    std::vector<std::int32_t> crossings;
    for (auto first = ranks.begin(); first != ranks.end();) {
      const std::int32_t node = owners_.node_of(*first);
      const auto last = std::find_if(first, ranks.end(), [&](std::int32_t r) { return owners_.node_of(r) != node; });
      if (node == owners_.node_of(owner)) {
        for (auto r = first; r != last; ++r) {
          if (*r != owner) at_owner.inputs.push_back(add(b, c, *r, owner));
        }
      } else if (options_.routing == Routing::direct) {
        for (auto r = first; r != last; ++r) crossings.push_back(add(b, c, *r, owner));
      } else {
        const std::int32_t collector = gather_.landings[at(b)][at(c)][at(node)];
        Combine sum{b, c, false, {}, -1};
        for (auto r = first; r != last; ++r) {
          if (*r != collector) sum.inputs.push_back(add(b, c, *r, collector));
        }
        sum.output = add(b, c, collector, owner);
        crossings.push_back(sum.output);
        out_.combines[at(collector)].push_back(std::move(sum));
      }
      first = last;
    }
    // What comes from the own node is there first; nodes follow in ascending order. The order is part of the result.
    at_owner.inputs.insert(at_owner.inputs.end(), crossings.begin(), crossings.end());
    out_.combines[at(owner)].push_back(std::move(at_owner));
  }

  void order_visits() {
    for (std::int32_t r = 0; r < owners_.ranks; ++r) {
      for (std::int32_t b = 0; b < needs_.batch(); ++b) {
        std::vector<std::int32_t> own, remote;
        for (const auto c : gather_.visits[at(r)][at(b)])
          (owners_.rank_of_chunk[at(c)] == r ? own : remote).push_back(c);
        auto& visit = out_.visits[at(r)].emplace_back();
        if (!own.empty()) visit.push_back(own.front());
        visit.insert(visit.end(), remote.begin(), remote.end());
        if (!own.empty()) visit.insert(visit.end(), own.begin() + 1, own.end());
      }
    }
  }

  /// When rank r finishes the chunk, as a place in its order of work.
  [[nodiscard]] std::vector<std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t>> places() const {
    std::vector<std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t>> out(at(owners_.ranks));
    for (std::int32_t r = 0; r < owners_.ranks; ++r) {
      for (std::int32_t b = 0; b < needs_.batch(); ++b) {
        const auto& visit = out_.visits[at(r)][at(b)];
        for (std::size_t i = 0; i < visit.size(); ++i) {
          out[at(r)][{b, visit[i]}] = static_cast<std::int64_t>(i) * needs_.batch() + b;
        }
      }
    }
    return out;
  }

  void order() {
    const auto place = places();
    const auto key = [&](std::int32_t rank, std::int32_t b, std::int32_t c) {
      const auto found = place[at(rank)].find({b, c});
      return found == place[at(rank)].end() ? std::int64_t{0} : found->second;
    };
    for (std::int32_t r = 0; r < owners_.ranks; ++r) {
      auto& combines = out_.combines[at(r)];
      std::stable_sort(combines.begin(), combines.end(), [&](const Combine& x, const Combine& y) {
        return std::tuple(x.owner, key(r, x.batch, x.chunk)) < std::tuple(y.owner, key(r, y.batch, y.chunk));
      });
    }
    std::vector<bool> collected(out_.transfers.size(), false);  // leaves only after a sum, so behind what needs none
    for (const auto& combines : out_.combines) {
      for (const Combine& c : combines) {
        if (c.output >= 0) collected[at(c.output)] = true;
      }
    }
    for (std::size_t i = 0; i < out_.transfers.size(); ++i) {
      const Transfer& t = out_.transfers[i];
      out_.sends[at(t.from)][static_cast<std::size_t>(t.link)].push_back(static_cast<std::int32_t>(i));
    }
    for (std::int32_t r = 0; r < owners_.ranks; ++r) {
      for (auto& lane : out_.sends[at(r)]) {
        std::stable_sort(lane.begin(), lane.end(), [&](std::int32_t x, std::int32_t y) {
          const Transfer& tx = out_.transfers[at(x)];
          const Transfer& ty = out_.transfers[at(y)];
          return std::tuple(collected[at(x)] ? 1 : 0, key(r, tx.batch, tx.chunk)) <
                 std::tuple(collected[at(y)] ? 1 : 0, key(r, ty.batch, ty.chunk));
        });
      }
    }
  }

  const Owners& owners_;
  const RankNeeds& needs_;
  const GatherSchedule& gather_;
  const ScheduleOptions options_;
  ReduceSchedule out_;
};

}  // namespace

ReduceSchedule schedule_reduce(const Owners& owners, const RankNeeds& needs, const GatherSchedule& gather,
                               const ScheduleOptions& options) {
  return ReduceBuilder(owners, needs, gather, options).build();
}

}  // namespace flashmask::overlap
