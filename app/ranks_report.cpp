#include <fmt/format.h>

#include "ranks.hpp"
#include "report.hpp"

namespace flashmask::app {
namespace {

using format::Json;

constexpr auto kInside = static_cast<std::size_t>(Link::inside);
constexpr auto kBetween = static_cast<std::size_t>(Link::between);

Json link_json(const std::array<std::int64_t, kLinks>& bytes) {
  Json value;
  value.set("inside", bytes[kInside]).set("between", bytes[kBetween]);
  return value;
}

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

Json ranks_json(const RankEngine& engine) {
  const Plan& plan = engine.plan();
  Json::Array list;
  for (std::size_t r = 0; r < engine.reports().size(); ++r) {
    const RankReport& report = engine.reports()[r];
    Json rank;
    rank.set("rank", static_cast<std::int64_t>(r)).set("node", plan.node_of_rank(static_cast<std::int64_t>(r)));
    rank.set("rows", plan.rows_of(static_cast<std::int64_t>(r))).set("load", plan.loads()[r]);
    rank.set("chunks_needed", report.planned.chunks_needed).set("chunks_pruned", report.planned.chunks_pruned);
    rank.set("buffer_bytes", report.planned.buffer_bytes);
    Json gather, reduce;
    gather.set("sent", link_json(report.gather_sent)).set("needed", link_json(report.gather_needed));
    reduce.set("sent", link_json(report.reduce_sent)).set("needed", link_json(report.reduce_needed));
    rank.set("gather_bytes", std::move(gather)).set("reduce_bytes", std::move(reduce));
    list.push_back(std::move(rank));
  }
  Json value;
  value.set("plan", std::string(to_string(plan.kind()))).set("digest", fmt::format("{:016x}", plan.digest()));
  value.set("ranks", plan.ranks()).set("nodes", plan.nodes()).set("chunk", plan.chunk()).set("chunks", plan.chunks());
  value.set("peak", plan.peak()).set("lower_bound", plan.lower_bound()).set("proven_optimal", plan.proven_optimal());
  value.set("imbalance", plan.imbalance()).set("bytes_equal", engine.byte_failures().empty());
  value.set("by_rank", std::move(list));
  return value;
}

std::string ranks_text(const RankEngine& engine) {
  const Plan& plan = engine.plan();
  Sheet sheet;
  sheet.add("plan",
            fmt::format("{}: {} chunks of {} rows on {} ranks, {} node(s), digest {:016x}", to_string(plan.kind()),
                        plan.chunks(), plan.chunk(), plan.ranks(), plan.nodes(), plan.digest()));
  sheet.add("balance", fmt::format("peak / average {:.4f}; peak {}, lower bound {}: {}", plan.imbalance(),
                                   grouped(plan.peak()), grouped(plan.lower_bound()),
                                   plan.proven_optimal()
                                       ? "proven optimal"
                                       : fmt::format("at most {} above the optimum", percent_up(plan.gap(), 2))));
  Table table({"rank", "node", "rows", "load", "needed", "pruned", "sent inside", "needed", "sent between", "needed",
               "MiB held"});
  for (std::size_t r = 0; r < engine.reports().size(); ++r) {
    const RankReport& report = engine.reports()[r];
    const auto rank = static_cast<std::int64_t>(r);
    table.add({fmt::format("{}", r), fmt::format("{}", plan.node_of_rank(rank)), grouped(plan.rows_of(rank)),
               grouped(plan.loads()[r]), grouped(report.planned.chunks_needed), grouped(report.planned.chunks_pruned),
               mebibytes(report.gather_sent[kInside] + report.reduce_sent[kInside]),
               mebibytes(report.gather_needed[kInside] + report.reduce_needed[kInside]),
               mebibytes(report.gather_sent[kBetween] + report.reduce_sent[kBetween]),
               mebibytes(report.gather_needed[kBetween] + report.reduce_needed[kBetween]),
               mebibytes(report.planned.buffer_bytes)});
  }
  return fmt::format("{}\n{}sent and needed in MiB over all calls; they are {}\n", sheet.text(), table.text(),
                     engine.byte_failures().empty() ? "equal to the byte" : "NOT EQUAL");
}

}  // namespace flashmask::app
