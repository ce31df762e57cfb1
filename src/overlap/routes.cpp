#include "overlap/routes.hpp"

#include <algorithm>

namespace flashmask::overlap {
namespace {

std::vector<std::vector<std::int32_t>> sources_of(const Routes& routes) {
  std::vector<std::vector<std::int32_t>> sources(static_cast<std::size_t>(routes.owners.ranks));
  for (const auto* transfers : {&routes.gather.transfers, &routes.reduce.transfers}) {
    for (const Transfer& t : *transfers) sources[static_cast<std::size_t>(t.to)].push_back(t.from);
  }
  for (auto& list : sources) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return sources;
}

}  // namespace

std::shared_ptr<const Routes> Routes::build(const ColumnMask& mask, const Plan& plan, Pruning pruning,
                                            const ScheduleOptions& options) {
  auto routes = std::make_shared<Routes>();
  routes->mask_digest = mask.digest();
  routes->plan_digest = plan.digest();
  routes->pruning = pruning;
  routes->options = options;
  routes->owners = Owners::of(plan);
  routes->needs = RankNeeds::build(mask, routes->owners, pruning);
  routes->gather = schedule_gather(routes->owners, routes->needs, options);
  routes->reduce = schedule_reduce(routes->owners, routes->needs, routes->gather, options);
  routes->layout = Layout::build(routes->owners, routes->needs, routes->reduce);
  routes->gathered = rows_sent(routes->owners, routes->gather.transfers);
  routes->reduced = rows_sent(routes->owners, routes->reduce.transfers);
  routes->sources = sources_of(*routes);
  return routes;
}

}  // namespace flashmask::overlap
