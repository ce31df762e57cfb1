#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>

#include "overlap/schedule.hpp"

namespace flashmask::overlap {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Planning weights of a token row on a link: inside a node is about eight times faster (NVLink to one network card).
/// They order arrivals; a wrong ratio costs time, never correctness.
constexpr std::array<std::int64_t, kLinks> kRowTime{1, 8};

class GatherBuilder {
 public:
  GatherBuilder(const Owners& owners, const RankNeeds& needs, const ScheduleOptions& options)
      : owners_(owners), needs_(needs), options_(options), landed_rows_(at(owners.ranks), 0) {
    out_.sends.resize(at(owners.ranks));
    out_.receives.resize(at(owners.ranks));
    out_.visits.resize(at(owners.ranks));
  }

  GatherSchedule build() {
    for (std::int32_t b = 0; b < needs_.batch(); ++b) {
      auto& landings = out_.landings.emplace_back();
      for (std::int32_t c = 0; c < owners_.chunks(); ++c) {
        landings.emplace_back(at(owners_.nodes), -1);
        route(b, c);
      }
    }
    order_sends();
    plan_arrivals();
    order_visits();
    return std::move(out_);
  }

 private:
  void add(std::int32_t b, std::int32_t c, std::int32_t from, std::int32_t to, bool relay) {
    const Link link = owners_.node_of(from) == owners_.node_of(to) ? Link::inside : Link::between;
    out_.transfers.push_back({b, c, from, to, link, relay, -1});
  }

  void route(std::int32_t b, std::int32_t c) {
    const std::int32_t owner = owners_.rank_of_chunk[at(c)];
    const auto& ranks = needs_.ranks_needing(b, c);
    for (auto first = ranks.begin(); first != ranks.end();) {
      const std::int32_t node = owners_.node_of(*first);
      const auto last = std::find_if(first, ranks.end(), [&](std::int32_t r) { return owners_.node_of(r) != node; });
      if (node == owners_.node_of(owner) || options_.routing == Routing::direct) {
        for (auto r = first; r != last; ++r) {
          if (*r != owner) add(b, c, owner, *r, false);
        }
      } else {
        const std::int32_t landing = choose_landing(first, last, c);
        out_.landings[at(b)][at(c)][at(node)] = landing;
        add(b, c, owner, landing, false);
        for (auto r = first; r != last; ++r) {
          if (*r != landing) add(b, c, landing, *r, true);
        }
      }
      first = last;
    }
  }

  template <typename It>
  std::int32_t choose_landing(It first, It last, std::int32_t c) {
    std::int32_t landing = *first;
    if (options_.landing == Landing::balanced) {
      landing = *std::min_element(first, last, [&](std::int32_t x, std::int32_t y) {
        return std::tie(landed_rows_[at(x)], x) < std::tie(landed_rows_[at(y)], y);
      });
    }
    landed_rows_[at(landing)] += owners_.rows_of(c);
    return landing;
  }

  /// Owners send chunk after chunk, and of each chunk first to the next rank in the ring, so that no peer has to wait
  /// until all others are served.
  void order_sends() {
    std::vector<std::int32_t> order(out_.transfers.size());
    std::iota(order.begin(), order.end(), 0);
    const auto key = [&](std::int32_t i) {
      const Transfer& t = out_.transfers[at(i)];
      return std::tuple(t.batch, t.chunk, (t.to - t.from + owners_.ranks) % owners_.ranks);
    };
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t x, std::int32_t y) { return key(x) < key(y); });
    for (const auto i : order) {
      const Transfer& t = out_.transfers[at(i)];
      if (!t.relay) out_.sends[at(t.from)][static_cast<std::size_t>(t.link)].push_back(i);
    }
  }

  std::int64_t send(std::int32_t i, std::int64_t not_before) {
    const Transfer& t = out_.transfers[at(i)];
    const auto lane = static_cast<std::size_t>(t.link);
    const std::int64_t start = std::max({not_before, free_out_[at(t.from)][lane], free_in_[at(t.to)][lane]});
    const std::int64_t end = start + owners_.rows_of(t.chunk) * kRowTime[lane];
    free_out_[at(t.from)][lane] = free_in_[at(t.to)][lane] = end;
    arrival_[at(i)] = end;
    return end;
  }

  /// Runs every lane as fast as sender and receiver allow, first what owners send, then what landing ranks pass on in
  /// the order in which it came.
  void plan_arrivals() {
    arrival_.assign(out_.transfers.size(), 0);
    free_out_.assign(at(owners_.ranks), {});
    free_in_.assign(at(owners_.ranks), {});
    using Turn = std::tuple<std::int64_t, std::int32_t, std::size_t, std::size_t>;  // time, rank, lane, place
    std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
    for (std::int32_t r = 0; r < owners_.ranks; ++r) {
      for (std::size_t lane = 0; lane < kLinks; ++lane) turns.emplace(0, r, lane, 0);
    }
    while (!turns.empty()) {
      const auto [time, r, lane, place] = turns.top();
      turns.pop();
      const auto& list = out_.sends[at(r)][lane];
      if (place < list.size()) turns.emplace(send(list[place], time), r, lane, place + 1);
    }
    plan_relays();
    for (std::size_t i = 0; i < out_.transfers.size(); ++i) {
      out_.receives[at(out_.transfers[i].to)].push_back(static_cast<std::int32_t>(i));
    }
    for (auto& list : out_.receives) {
      std::stable_sort(list.begin(), list.end(),
                       [&](std::int32_t x, std::int32_t y) { return arrival_[at(x)] < arrival_[at(y)]; });
    }
  }

  void plan_relays() {
    std::vector<std::pair<std::int64_t, std::int32_t>> relays;  // when the chunk lands, transfer
    std::vector<std::int64_t> landed;
    const auto unit = [&](const Transfer& t) {
      return static_cast<std::int64_t>(t.batch) * owners_.chunks() + t.chunk;
    };
    landed.assign(at(static_cast<std::int64_t>(needs_.batch()) * owners_.chunks() * owners_.nodes), 0);
    for (std::size_t i = 0; i < out_.transfers.size(); ++i) {
      const Transfer& t = out_.transfers[i];
      if (!t.relay && t.link == Link::between) {
        landed[at(unit(t) * owners_.nodes + owners_.node_of(t.to))] = arrival_[i];
      }
    }
    for (std::size_t i = 0; i < out_.transfers.size(); ++i) {
      const Transfer& t = out_.transfers[i];
      if (t.relay) {
        relays.emplace_back(landed[at(unit(t) * owners_.nodes + owners_.node_of(t.from))],
                            static_cast<std::int32_t>(i));
      }
    }
    std::sort(relays.begin(), relays.end());
    for (const auto& [time, i] : relays) {
      out_.sends[at(out_.transfers[at(i)].from)][static_cast<std::size_t>(Link::inside)].push_back(i);
      send(i, time);
    }
  }

  void order_visits() {
    for (std::int32_t r = 0; r < owners_.ranks; ++r) {
      auto& visits = out_.visits[at(r)];
      visits.resize(at(needs_.batch()));
      for (std::int32_t b = 0; b < needs_.batch(); ++b) {
        for (const auto c : needs_.chunks_of(r, b)) {
          if (owners_.rank_of_chunk[at(c)] == r) visits[at(b)].push_back(c);
        }
      }
      for (const auto i : out_.receives[at(r)]) {
        visits[at(out_.transfers[at(i)].batch)].push_back(out_.transfers[at(i)].chunk);
      }
    }
  }

  const Owners& owners_;
  const RankNeeds& needs_;
  const ScheduleOptions options_;
  std::vector<std::int64_t> landed_rows_;
  std::vector<std::int64_t> arrival_;
  std::vector<std::array<std::int64_t, kLinks>> free_out_, free_in_;
  GatherSchedule out_;
};

}  // namespace

GatherSchedule schedule_gather(const Owners& owners, const RankNeeds& needs, const ScheduleOptions& options) {
  return GatherBuilder(owners, needs, options).build();
}

std::vector<std::array<std::int64_t, kLinks>> rows_sent(const Owners& owners, const std::vector<Transfer>& transfers) {
  std::vector<std::array<std::int64_t, kLinks>> rows(at(owners.ranks), {0, 0});
  for (const Transfer& t : transfers) rows[at(t.from)][static_cast<std::size_t>(t.link)] += owners.rows_of(t.chunk);
  return rows;
}

}  // namespace flashmask::overlap
