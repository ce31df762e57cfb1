// What a plan is to be made of: bare loads or masks, ranks, nodes, chunk, costs; shared by the ways `plan` can be
// asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flashmask/balance.hpp"
#include "mask_request.hpp"

namespace CLI {
class App;
}

namespace flashmask::app {

inline constexpr std::int64_t kLongestChunk = 1 << 30;

/// Why per_document_dual_chunk cannot plan a workload without documents, and what to do.
inline constexpr std::string_view kNeedsDocuments =
    "it needs the lengths of the documents, the same in every batch row: name them with --workload, or take dual_chunk";

struct PlanRequest {
  MaskRequest mask;
  std::optional<std::string> loads;  ///< with commas between them
  std::string layers;                ///< NAME or NAME:COUNT with commas between them, each laid over the same workload
  std::int64_t ranks = 8;
  std::int64_t nodes = 1;
  std::optional<std::int64_t> chunk;  ///< default_chunk()
  std::string speeds;                 ///< with commas between them
  std::string unit = "tiles";
  std::string tile = "128x128";
  std::string costs;  ///< partial,unmasked of the forward
  std::string calibration;
  std::string directions = "forward";
  std::string kind = "hcc_ipo";
  double epsilon = 0.01;
  std::uint64_t search_seed = 0;
  std::int64_t steps = 0;
  std::optional<std::int64_t> proof_steps, time_budget_ms;
};

/// Masks of a request with their weights; empty for bare loads.
struct PlanMasks {
  std::vector<NamedMask> masks;
  std::vector<std::int64_t> weights;
  [[nodiscard]] std::vector<WeightedMask> weighted() const;
};

/// Adds everything of PlanRequest.
void add_plan_options(CLI::App& command, PlanRequest& request);

/// Masks of the request, none for bare loads. Refuses options of the request that the rest of it has no use for.
PlanMasks plan_masks(const PlanRequest& request);
/// How `masks` become loads; `chunk` is the request's or the default for their length.
WorkloadOptions workload_options(const PlanRequest& request, const PlanMasks& masks);
/// Lengths of the documents where every batch row has the same; empty otherwise.
std::vector<std::int64_t> common_documents(const NamedMask& named);
/// The workload of bare loads or of `masks`.
Workload plan_workload(const PlanRequest& request, const PlanMasks& masks);
BalanceOptions balance_options(const PlanRequest& request);

}  // namespace flashmask::app
