// What moves, over which link, in which order: plain data computed from plan and need sets. The runtime executes these
// objects, byte accounting sums them, and `simulate` times them; none of the three has an idea of its own.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "flashmask/communicator.hpp"
#include "flashmask/context_parallel.hpp"
#include "overlap/needs.hpp"

namespace flashmask::overlap {

/// Keys and values (gather), or the sum of dK and dV so far (reduce), of one chunk of one batch row.
struct Transfer {
  std::int32_t batch = 0;
  std::int32_t chunk = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  Link link = Link::inside;
  bool relay = false;         ///< gather: `from` does not own the chunk but received it from another node
  std::int32_t inbound = -1;  ///< reduce: which of `to`'s inbound slots it lands in
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

using Lanes = std::array<std::vector<std::int32_t>, kLinks>;  ///< transfer numbers per link, in stream order

struct GatherSchedule {
  std::vector<Transfer> transfers;
  std::vector<Lanes> sends;                         ///< by rank
  std::vector<std::vector<std::int32_t>> receives;  ///< by rank, in planned order of arrival
  /// By rank and batch row: needed chunks, own ones first, then in planned order of arrival. A fixed order, so results
  /// do not depend on timing.
  std::vector<std::vector<std::vector<std::int32_t>>> visits;
  /// landings[b][chunk][node]: the rank of the node that receives the chunk from outside, -1 where there is none.
  std::vector<std::vector<std::vector<std::int32_t>>> landings;
};

/// One rank's sum of one chunk: its own part first, then the inputs in this order.
struct Combine {
  std::int32_t batch = 0;
  std::int32_t chunk = 0;
  bool owner = false;
  std::vector<std::int32_t> inputs;  ///< transfer numbers
  std::int32_t output = -1;          ///< transfer number of the crossing to the owner; -1 at the owner
};

struct ReduceSchedule {
  std::vector<Transfer> transfers;
  std::vector<Lanes> sends;                        ///< by rank
  std::vector<std::vector<Combine>> combines;      ///< by rank: for other nodes first, then as owner
  std::vector<std::vector<std::int32_t>> inbound;  ///< by rank: transfer number of every inbound slot
  /// By rank and batch row: the order in which columns are finished. One own chunk covers the first arrival, then
  /// remote chunks in order of arrival, so that their gradients leave while the rest of the own chunks is computed.
  std::vector<std::vector<std::vector<std::int32_t>>> visits;
};

struct ScheduleOptions {
  Routing routing = Routing::hierarchical;
  Landing landing = Landing::balanced;
};

GatherSchedule schedule_gather(const Owners& owners, const RankNeeds& needs, const ScheduleOptions& options);
ReduceSchedule schedule_reduce(const Owners& owners, const RankNeeds& needs, const GatherSchedule& gather,
                               const ScheduleOptions& options);

/// Token rows that each rank sends over each link.
std::vector<std::array<std::int64_t, kLinks>> rows_sent(const Owners& owners, const std::vector<Transfer>& transfers);

}  // namespace flashmask::overlap
