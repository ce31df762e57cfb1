// All that follows from mask, plan and options alone, for every rank: computed once, shared by the ranks of a process.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "overlap/layout.hpp"

namespace flashmask::overlap {

struct Routes {
  std::uint64_t mask_digest = 0, plan_digest = 0;
  Pruning pruning = Pruning::on;
  ScheduleOptions options;
  Owners owners;
  RankNeeds needs;
  GatherSchedule gather;
  ReduceSchedule reduce;
  Layout layout;
  std::vector<std::array<std::int64_t, kLinks>> gathered, reduced;  ///< token rows that each rank sends
  std::vector<std::vector<std::int32_t>> sources;                   ///< by rank: ranks that write into it, ascending

  /// Time and memory grow with ranks x chunks and with the transfers. Throws invalid_argument unless the plan deals the
  /// mask's tokens.
  static std::shared_ptr<const Routes> build(const ColumnMask& mask, const Plan& plan, Pruning pruning,
                                             const ScheduleOptions& options);
};

}  // namespace flashmask::overlap
