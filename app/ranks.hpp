// The main job on virtual ranks: threads of this process that gather, attend and reduce by a plan, as devices would.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "flashmask/attention.hpp"
#include "flashmask/balance.hpp"
#include "flashmask/context_parallel.hpp"
#include "format/fields.hpp"
#include "format/json.hpp"
#include "mask_request.hpp"

namespace CLI {
class App;
}

namespace flashmask::app {

struct RanksOptions {
  std::int64_t ranks = 0;  ///< 0: one device
  std::int64_t nodes = 1;
  std::string plan = "hcc_ipo";  ///< a kind or a file
  std::int64_t chunk = 0;        ///< 0: eight chunks a rank, a multiple of 64 rows
  std::int64_t deadline = 120;   ///< seconds
};

/// Adds --ranks, --nodes, --plan, --chunk and --deadline.
void add_ranks_options(CLI::App& command, RanksOptions& options);

/// Refuses what was given and would not be used: all of it where nothing runs on ranks, --chunk beside a plan file.
void check_ranks_options(const CLI::App& command, const RanksOptions& options, bool on_ranks);

/// Tokens of a chunk where nobody says: eight chunks a rank, in whole steps of 64 tokens, at least 64.
std::int64_t default_chunk(std::int64_t columns, std::int64_t ranks);

/// Refuses chunks whose need sets (a bit for every pair of chunks of a batch row) would take more than 2 GiB: time and
/// memory of a plan grow with the square of their number.
void check_chunks(std::int64_t columns, std::int64_t chunk, std::int64_t batch);

/// Calls plan(). What a layout that needs the documents cannot hold is refused by `option`, which named the layout.
template <typename F>
auto of_kind(const std::string& option, const std::string& kind, const F& plan) {
  if (kind != to_string(PlanKind::per_document_dual_chunk)) return plan();
  return format::naming(option + " " + kind, plan);
}

/// Plans the mask; throws naming the option at fault.
Plan plan_of(const RanksOptions& options, const NamedMask& named);

/// What one rank did, over all calls of an engine.
struct RankReport {
  PlannedTraffic planned;
  std::array<std::int64_t, kLinks> gather_sent{}, reduce_sent{};      ///< counted by the transport
  std::array<std::int64_t, kLinks> gather_needed{}, reduce_needed{};  ///< by the schedule, for the calls made
};

/// Runs calls of a whole problem on ranks. Tensors must be contiguous [batch][positions][heads][head_dim].
class RankEngine {
 public:
  RankEngine(const ColumnMask& mask, Plan plan, std::chrono::milliseconds deadline);

  void forward(const ForwardArguments& arguments);
  void backward(const BackwardArguments& arguments);
  /// The documents' rows seen through codes in V; one sentence for each finding, empty when clean.
  std::vector<std::string> contamination(const AttentionShape& shape,
                                         const std::vector<std::vector<std::int64_t>>& documents);

  /// Milliseconds of the last call, from the moment all ranks were ready.
  [[nodiscard]] double milliseconds() const { return milliseconds_; }
  [[nodiscard]] const std::vector<RankReport>& reports() const { return reports_; }
  [[nodiscard]] const Plan& plan() const { return plan_; }
  /// One sentence for each rank and link whose sent bytes are not the needed ones.
  [[nodiscard]] std::vector<std::string> byte_failures() const;

 private:
  template <typename F>
  void run(const AttentionShape& shape, DType dtype, int gathers, int reduces, const F& call);

  const ColumnMask& mask_;
  const Plan plan_;
  const ContextParallelRoutes routes_;  ///< shared by the ranks
  const std::chrono::milliseconds deadline_;
  double milliseconds_ = 0;
  std::vector<RankReport> reports_;
};

/// Member "ranks" of a report, and the same as tables for people.
format::Json ranks_json(const RankEngine& engine);
std::string ranks_text(const RankEngine& engine);

/// Document lengths of every batch row, as far as the mask's origin tells; one document otherwise.
std::vector<std::vector<std::int64_t>> documents_of(const NamedMask& named);

}  // namespace flashmask::app
