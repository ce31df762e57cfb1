#include "overlap/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/check.hpp"
#include "overlap/simulate_work.hpp"

namespace flashmask::overlap {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

constexpr double kUnknown = std::numeric_limits<double>::infinity();

/// Two serial lanes a rank, at the sender and at the receiver.
class Network {
 public:
  Network(const Cluster& cluster, const Owners& owners, double start)
      : cluster_(cluster),
        owners_(owners),
        out_(at(owners.ranks), {start, start}),
        in_(at(owners.ranks), {start, start}) {}

  /// Runs `transfers` in stream order. ready[i]: from when transfer i may leave (kUnknown until `arrived` sets it);
  /// arrived(i, time) is called as each arrives and may set further ready times.
  template <typename F>
  void run(const std::vector<Transfer>& transfers, const std::vector<Lanes>& sends, std::int64_t row_bytes,
           std::vector<double>& ready, std::vector<RankTimeline>& ranks, Span::Kind kind, const F& arrived) {
    std::vector<std::array<std::size_t, kLinks>> place(at(owners_.ranks), {0, 0});
    while (true) {
      double best = kUnknown;
      std::int32_t best_rank = -1;
      std::size_t best_lane = 0;
      for (std::int32_t r = 0; r < owners_.ranks; ++r) {
        for (std::size_t lane = 0; lane < kLinks; ++lane) {
          const auto& list = sends[at(r)][lane];
          if (place[at(r)][lane] == list.size()) continue;
          const auto i = list[place[at(r)][lane]];
          const double start = std::max({ready[at(i)], out_[at(r)][lane], in_[at(transfers[at(i)].to)][lane]});
          if (start < best) best = start, best_rank = r, best_lane = lane;
        }
      }
      if (best_rank < 0) return;
      const auto i = sends[at(best_rank)][best_lane][place[at(best_rank)][best_lane]++];
      const Transfer& t = transfers[at(i)];
      const double bytes = static_cast<double>(owners_.rows_of(t.chunk) * row_bytes);
      const double end = best + bytes / cluster_.bandwidth[best_lane];
      out_[at(best_rank)][best_lane] = in_[at(t.to)][best_lane] = end;
      if (kind != Span::Kind::attention) ranks[at(best_rank)].spans.push_back({kind, t.link, best, end});
      arrived(i, end + cluster_.latency[best_lane]);
    }
  }

 private:
  const Cluster& cluster_;
  const Owners& owners_;
  std::vector<std::array<double, kLinks>> out_, in_;
};

class Simulation {
 public:
  Simulation(const ColumnMask& mask, const Plan& plan, const SimulatedShape& shape, const Cluster& cluster,
             const SimulateOptions& options)
      : shape_(shape),
        cluster_(cluster),
        options_(options),
        owners_(Owners::of(plan)),
        needs_(RankNeeds::build(mask, owners_, options.pruning)),
        gather_(schedule_gather(owners_, needs_, options.schedule)),
        reduce_(schedule_reduce(owners_, needs_, gather_, options.schedule)),
        sms_(options.overlapping == Overlapping::on && owners_.ranks > 1 ? cluster.sms - cluster.communication_sms
                                                                         : cluster.sms) {
    for (std::int32_t r = 0; r < owners_.ranks; ++r) work_.emplace_back(mask, owners_, needs_, r, shape);
  }

  StepTimeline run() {
    StepTimeline step;
    step.forward = pass(/*backward=*/false);
    step.backward = pass(/*backward=*/true);
    for (std::size_t link = 0; link < kLinks; ++link) {
      for (std::int32_t r = 0; r < owners_.ranks; ++r) {
        step.bytes[link] += 2 * rows_sent(owners_, gather_.transfers)[at(r)][link] * row_bytes(shape_.key_bytes) +
                            rows_sent(owners_, reduce_.transfers)[at(r)][link] * row_bytes(shape_.gradient_bytes);
      }
    }
    return step;
  }

 private:
  using Arrivals = std::vector<RankWork::Arrivals>;  // by rank

  [[nodiscard]] std::int64_t row_bytes(std::int64_t element) const {
    return 2 * shape_.kv_heads * shape_.head_dim * element;
  }

  /// Own chunks are there at once.
  Arrivals run_gather(Network& network, std::vector<RankTimeline>& ranks, double start) {
    Arrivals arrivals;
    for (const RankWork& w : work_) arrivals.push_back(w.all_at(start));
    std::vector<double> ready(gather_.transfers.size(), start);
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::vector<std::int32_t>> relays;
    for (std::size_t i = 0; i < gather_.transfers.size(); ++i) {
      const Transfer& t = gather_.transfers[i];
      if (!t.relay) continue;
      ready[i] = kUnknown;
      relays[{t.batch, t.chunk, t.from}].push_back(static_cast<std::int32_t>(i));
    }
    network.run(gather_.transfers, gather_.sends, row_bytes(shape_.key_bytes), ready, ranks, Span::Kind::gather,
                [&](std::int32_t i, double time) {
                  const Transfer& t = gather_.transfers[at(i)];
                  arrivals[at(t.to)][at(t.batch)][at(needs_.slot(t.to, t.batch, t.chunk))] = time;
                  const auto next = relays.find({t.batch, t.chunk, t.to});
                  if (next == relays.end()) return;
                  for (const auto relay : next->second) ready[at(relay)] = time;
                });
    return arrivals;
  }

  /// Returns when each rank's own sums are complete. done[r][b][place]: the rank's own part.
  std::vector<double> run_reduce(Network& network, std::vector<RankTimeline>& ranks, const Arrivals& done) {
    const std::size_t count = reduce_.transfers.size();
    std::vector<double> ready(count, kUnknown), complete(at(owners_.ranks), 0);
    std::vector<const Combine*> combine_of(count, nullptr);
    std::map<const Combine*, std::pair<std::size_t, double>> open;  // inputs to come, time so far
    const auto own = [&](std::int32_t r, std::int32_t b, std::int32_t c) {
      const auto place = needs_.slot(r, b, c);
      return place >= 0 ? done[at(r)][at(b)][at(place)] : 0.0;
    };
    const auto close = [&](std::int32_t r, const Combine& combine, double time) {
      if (combine.output >= 0) ready[at(combine.output)] = time;
      if (combine.owner) complete[at(r)] = std::max(complete[at(r)], time);
    };
    for (std::size_t i = 0; i < count; ++i) {
      const Transfer& t = reduce_.transfers[i];
      ready[i] = own(t.from, t.batch, t.chunk);
    }
    for (std::int32_t r = 0; r < owners_.ranks; ++r) {
      for (const Combine& combine : reduce_.combines[at(r)]) {
        if (combine.output >= 0) ready[at(combine.output)] = kUnknown;
        for (const auto i : combine.inputs) combine_of[at(i)] = &combine;
        open[&combine] = {combine.inputs.size(), own(r, combine.batch, combine.chunk)};
        if (combine.inputs.empty()) close(r, combine, own(r, combine.batch, combine.chunk));
      }
    }
    network.run(reduce_.transfers, reduce_.sends, row_bytes(shape_.gradient_bytes), ready, ranks, Span::Kind::reduce,
                [&](std::int32_t i, double time) {
                  const Transfer& t = reduce_.transfers[at(i)];
                  const double bytes = static_cast<double>(owners_.rows_of(t.chunk) * row_bytes(shape_.gradient_bytes));
                  auto& [left, so_far] = open[combine_of[at(i)]];
                  so_far = std::max(so_far, time) + bytes / cluster_.sum_bandwidth;
                  if (--left == 0) close(t.to, *combine_of[at(i)], so_far);
                });
    return complete;
  }

  PassTimeline pass(bool backward) {
    PassTimeline out;
    out.ranks.resize(at(owners_.ranks));
    const double start = cluster_.launch;
    Network network(cluster_, owners_, start);
    const Arrivals arrivals = run_gather(network, out.ranks, start);
    Arrivals done(at(owners_.ranks));
    for (std::int32_t r = 0; r < owners_.ranks; ++r)
      attend(r, backward, arrivals[at(r)], out.ranks[at(r)], done[at(r)]);
    std::vector<double> complete(at(owners_.ranks), 0);
    if (backward) complete = run_reduce(network, out.ranks, done);
    for (std::int32_t r = 0; r < owners_.ranks; ++r) {
      RankTimeline& rank = out.ranks[at(r)];
      rank.end = std::max(rank.attention_end, complete[at(r)]);
      out.time = std::max(out.time, rank.end);
      out.compute = std::max(out.compute, rank.compute);
    }
    out.communication = communication_alone(backward);
    return out;
  }

  void attend(std::int32_t r, bool backward, const RankWork::Arrivals& arrivals, RankTimeline& rank,
              RankWork::Arrivals& done) {
    const RankWork& work = work_[at(r)];
    const TileSeconds& seconds = backward ? cluster_.backward : cluster_.forward;
    const auto& visits = backward ? reduce_.visits[at(r)] : gather_.visits[at(r)];
    const auto run = [&](const RankWork::Arrivals& when, double start) {
      return backward ? work.backward(when, visits, seconds, sms_, start, done)
                      : work.forward(when, visits, seconds, sms_, start);
    };
    const double start = cluster_.launch;
    rank.compute = run(work.all_at(start), start);
    double begin = start;
    if (options_.overlapping == Overlapping::off) {
      for (const auto& list : arrivals) {
        for (const double t : list) begin = std::max(begin, t);
      }
      if (begin > start) begin += cluster_.launch;
      rank.attention_end = run(work.all_at(begin), begin);
      for (auto& list : done) std::fill(list.begin(), list.end(), rank.attention_end + cluster_.launch);
    } else {
      rank.attention_end = run(arrivals, start);
    }
    rank.spans.push_back({Span::Kind::attention, Link::inside, begin, rank.attention_end});
  }

  [[nodiscard]] double communication_alone(bool backward) {
    if (gather_.transfers.empty()) return 0;
    std::vector<RankTimeline> ignored(at(owners_.ranks));
    Network network(cluster_, owners_, 0);
    double end = 0;
    const Arrivals arrivals = run_gather(network, ignored, 0);
    for (const auto& rank : arrivals) {
      for (const auto& list : rank) {
        for (const double t : list) end = std::max(end, t);
      }
    }
    if (!backward) return end;
    Arrivals at_once;
    for (const RankWork& w : work_) at_once.push_back(w.all_at(0));
    for (const double t : run_reduce(network, ignored, at_once)) end = std::max(end, t);
    return end;
  }

  const SimulatedShape shape_;
  const Cluster cluster_;
  const SimulateOptions options_;
  const Owners owners_;
  const RankNeeds needs_;
  const GatherSchedule gather_;
  const ReduceSchedule reduce_;
  const std::int32_t sms_;
  std::vector<RankWork> work_;
};

}  // namespace

void validate(const Cluster& c) {
  const auto positive = [](const char* name, double x) {
    core::check(std::isfinite(x) && x > 0, "cluster: {} = {}: it must be positive", name, x);
  };
  core::check(c.sms >= 1 && c.communication_sms >= 0 && c.communication_sms < c.sms,
              "cluster: sms = {}, communication_sms = {}: attention must keep at least one", c.sms,
              c.communication_sms);
  positive("forward.partial", c.forward.partial);
  positive("forward.unmasked", c.forward.unmasked);
  positive("backward.partial", c.backward.partial);
  positive("backward.unmasked", c.backward.unmasked);
  positive("sum_bandwidth", c.sum_bandwidth);
  for (const Link link : {Link::inside, Link::between}) {
    const auto l = static_cast<std::size_t>(link);
    core::check(std::isfinite(c.bandwidth[l]) && c.bandwidth[l] > 0,
                "cluster: the bandwidth {} is {}: it must be positive", to_string(link), c.bandwidth[l]);
    core::check(std::isfinite(c.latency[l]) && c.latency[l] >= 0,
                "cluster: the latency {} is {}: it must not be negative", to_string(link), c.latency[l]);
  }
  core::check(std::isfinite(c.launch) && c.launch >= 0, "cluster: launch = {}: it must not be negative", c.launch);
}

StepTimeline simulate(const ColumnMask& mask, const Plan& plan, const SimulatedShape& shape, const Cluster& cluster,
                      const SimulateOptions& options) {
  validate(cluster);
  core::check(mask.shape().columns == plan.columns() && mask.shape().rows == plan.columns(),
              "the plan deals {} tokens, the mask has {} rows and {} columns", plan.columns(), mask.shape().rows,
              mask.shape().columns);
  core::check(shape.kv_heads >= 1 && shape.query_heads >= 1 && shape.query_heads % shape.kv_heads == 0 &&
                  shape.query_heads % mask.shape().heads == 0,
              "query_heads = {}, kv_heads = {}, mask heads = {}: they must divide", shape.query_heads, shape.kv_heads,
              mask.shape().heads);
  return Simulation(mask, plan, shape, cluster, options).run();
}

}  // namespace flashmask::overlap
