// Who computes what: chunks of rows to ranks, with a certificate (docs/balance.md).
//
// Integers in, integers out: loads, peaks and bounds are exact int64 in the unit of the workload. The result depends on
// the workload and the options alone, so every rank that computes a plan gets the same one (unless the caller asks for
// a time budget; then one rank computes and broadcasts).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flashmask/mask.hpp"
#include "flashmask/needs.hpp"
#include "flashmask/tile.hpp"

namespace flashmask {

/// What a workload and a plan may hold; beyond it they are refused by the field's name.
inline constexpr std::int64_t kMostLoad = std::int64_t{1} << 62;  ///< all loads, times fastest / slowest speed
inline constexpr std::int64_t kMostSpeed = 1'000'000;             ///< relative speeds are from 1 on
inline constexpr std::int64_t kMostLayers = 1'000'000;            ///< weight of one mask, from 1 on
inline constexpr std::int64_t kMostRanks = 1 << 16;
inline constexpr std::int64_t kMostChunks = 1 << 22;
inline constexpr std::int64_t kMostEpsilonMillionths = 1'000'000;

/// How chunks are dealt to ranks. Only hcc_ipo minimises anything; the others are layouts people already use.
enum class PlanKind : std::uint8_t {
  hcc_ipo,                  ///< smallest peak, then least traffic between nodes within epsilon
  contiguous,               ///< rank r owns consecutive chunks
  dual_chunk,               ///< 2P equal pieces, rank r owns pieces r and 2P-1-r (zigzag)
  per_document_dual_chunk,  ///< the zigzag inside every document; documents must be multiples of 2P chunks
  lpt,  ///< largest load first to the least loaded rank with room (equal counts: loads above the least)
};
std::string_view to_string(PlanKind kind);
/// Throws invalid_argument naming the five kinds.
PlanKind plan_kind(std::string_view name);

/// What found the assignment of a plan.
enum class PlanMethod : std::uint8_t { layout, lpt, bldm, pairs, triples, exact, hierarchy, fill };
std::string_view to_string(PlanMethod method);

/// What proves lower_bound: each value names the argument (docs/balance.md); `search` is a complete search that found
/// every smaller peak impossible. Of arguments that give the same bound the first of average, counts, pigeonhole,
/// incompatible, covering, residue and search is named.
enum class BoundBy : std::uint8_t { average, pigeonhole, covering, incompatible, residue, search, counts };
std::string_view to_string(BoundBy by);

/// What one unit of load is: a bare number of the caller, visible cells, or tile costs in thousandths.
enum class WorkUnit : std::uint8_t { bare, cells, tiles };
std::string_view to_string(WorkUnit unit);

/// Which chunks the rows of a chunk can see, per batch row, for one mask; `weight` counts the layers (or calls) that
/// use it. The sets themselves never change and copies share them, so workload and plan hold them once.
class NeedSets {
 public:
  std::int64_t weight = 1;

  /// Of no chunks.
  NeedSets() : NeedSets(NeedRuns()) {}
  /// Throws invalid_argument unless rows and columns are cut into the same number of chunks.
  explicit NeedSets(NeedRuns matrix, std::int64_t weight = 1);

  [[nodiscard]] std::int64_t batch() const { return matrix_->batch(); }
  [[nodiscard]] std::int64_t chunks() const { return matrix_->row_chunks(); }
  /// The chunks that row chunk i needs: ascending runs, none touches the next.
  [[nodiscard]] std::span<const ChunkRun> row(std::int64_t b, std::int64_t i) const { return matrix_->row(b, i); }
  [[nodiscard]] bool needs(std::int64_t b, std::int64_t i, std::int64_t j) const { return matrix_->needs(b, i, j); }
  [[nodiscard]] const NeedRuns& matrix() const { return *matrix_; }
  friend bool operator==(const NeedSets& a, const NeedSets& b) {
    return a.weight == b.weight && (a.matrix_ == b.matrix_ || *a.matrix_ == *b.matrix_);
  }

 private:
  std::shared_ptr<const NeedRuns> matrix_;
};

/// Tile costs by direction, in thousandths of an unmasked forward tile. The defaults stand here and nowhere else; a
/// calibration file replaces them. Ranks never calibrate each on their own.
struct DirectionCosts {
  TileCosts forward{1080, 1000};
  TileCosts backward{2700, 2500};
  friend bool operator==(const DirectionCosts&, const DirectionCosts&) = default;
};

/// How loads in tiles were counted; a plan carries it, so that whoever has the mask can count them again.
struct TileWork {
  TileShape tile_shape{};
  DirectionCosts costs{};            ///< {0, 0} of a direction that is not counted
  std::int64_t forward_weight = 1;   ///< calls of the forward per step; 0: not counted
  std::int64_t backward_weight = 0;  ///< calls of the backward per step; 0: not counted
  friend bool operator==(const TileWork&, const TileWork&) = default;
};

/// What a bound by residue rests on: all but a few chunk loads are `rest` modulo `modulus`, or `rest` or `other`. A
/// plan carries it, so that whoever checks the bound need not look for it.
struct ResidueLattice {
  std::int64_t modulus = 2;  ///< at least 2
  std::int64_t rest = 0;     ///< in [0, modulus)
  std::int64_t other = -1;   ///< in [0, modulus) and not `rest`, or -1: there is one class
  friend bool operator==(const ResidueLattice&, const ResidueLattice&) = default;
};

/// What is to be shared out. `loads` alone is enough; everything else has a meaning only when given.
struct Workload {
  std::vector<std::int64_t> loads;  ///< one per chunk, >= 0, sum at most kMostLoad
  WorkUnit unit = WorkUnit::bare;
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;    ///< rank r lives on node r * nodes / ranks
  std::int64_t columns = 0;  ///< tokens; 0: one per chunk
  std::int64_t chunk = 1;    ///< tokens per chunk, the last chunk may be shorter
  /// Relative speed of each rank, 1..kMostSpeed, empty for equal ones. The peak is then the largest ceil(load * fastest
  /// / own), and the chunks % ranks fastest ranks (of equal ones those with lower numbers) are the ones with one chunk
  /// more. Only their ratios count: a common factor, and speeds that are all equal, change nothing in the plan.
  std::vector<std::int64_t> speeds;
  std::vector<NeedSets> needs;          ///< one per mask; empty: traffic is not known and nodes do not matter
  std::vector<std::int64_t> documents;  ///< lengths in tokens, read by per_document_dual_chunk alone
  std::optional<TileWork> tile_work;    ///< of unit = tiles, where known; goes into the plan

  [[nodiscard]] std::int64_t chunks() const { return static_cast<std::int64_t>(loads.size()); }
};

/// A mask and the number of layers (or calls) that use it.
struct WeightedMask {
  const ColumnMask* mask = nullptr;
  std::int64_t weight = 1;
};

/// How masks become loads.
struct WorkloadOptions {
  std::int64_t chunk = 1024;
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  WorkUnit unit = WorkUnit::tiles;  ///< cells or tiles
  TileShape tile_shape{};
  DirectionCosts costs{};
  std::int64_t forward_weight = 1;   ///< calls of the forward per step
  std::int64_t backward_weight = 0;  ///< calls of the backward per step
};

/// What loads in tiles under `options` are counted by.
TileWork tile_work(const WorkloadOptions& options);

/// Loads and need sets of one or several masks of equal length (rows = columns): loads are summed over masks with their
/// weights and over both directions with theirs. Throws invalid_argument naming what does not fit.
Workload make_workload(std::span<const WeightedMask> masks, const WorkloadOptions& options);

/// How a plan is searched. The defaults answer production sizes in micro- to milliseconds.
struct BalanceOptions {
  PlanKind kind = PlanKind::hcc_ipo;
  /// Millionths of max(bound, average) that stage 2 may spend on less traffic between nodes.
  std::int64_t epsilon_millionths = 10'000;
  std::uint64_t seed = 0;
  /// Effort in elementary steps (one step is about a microsecond); 0 takes a default from the size. Same steps, same
  /// plan.
  std::int64_t steps = 0;
  /// Ends `balance` by the clock as well: time for what follows the search is set aside. What comes before it (bounds
  /// and a start) and the count of traffic happen whatever the budget is, so a smaller one than they take is overrun:
  /// 20 ms at 65,536 chunks of a mask on 1,024 ranks, 1 ms at 4,096 (docs/balance.md). The plan then depends on the
  /// machine: compute once and broadcast.
  std::optional<std::chrono::nanoseconds> time_budget{};
  /// Proof effort: complete searches may take this many steps (0: none). They end with a proof or without a claim.
  std::int64_t proof_steps = 50'000;
};

/// (batch row, chunk) units that cross a link in one forward gather, weighted over masks.
struct Traffic {
  std::int64_t inter_chunks = 0;  ///< one crossing for each (node, remote chunk needed by any of its ranks)
  std::int64_t intra_chunks = 0;  ///< every further delivery inside a node
  std::int64_t inter_rows = 0;    ///< the same in token rows: the last chunk may be shorter
  std::int64_t intra_rows = 0;
  [[nodiscard]] std::int64_t total_chunks() const { return inter_chunks + intra_chunks; }
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

/// Bytes of the keys and values (or of dK and dV) of one pass.
struct TrafficBytes {
  std::int64_t inter = 0;
  std::int64_t intra = 0;
};

/// What a plan says, as plain data: the content of a plan file. `Plan` is the checked value.
struct PlanRecord {
  std::int64_t columns = 0;
  std::int64_t chunk = 1;
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  PlanKind kind = PlanKind::hcc_ipo;
  WorkUnit unit = WorkUnit::bare;
  std::vector<std::int64_t> assignment;   ///< the rank of each chunk
  std::vector<std::int64_t> chunk_loads;  ///< the workload's loads
  std::vector<std::int64_t> speeds;       ///< empty for equal ranks; `balance` writes them in lowest terms
  std::vector<std::int64_t> loads;        ///< by rank
  std::int64_t peak = 0;
  std::int64_t lower_bound = 0;
  BoundBy bound_by = BoundBy::average;
  bool proven_optimal = false;
  PlanMethod method = PlanMethod::layout;
  std::int64_t epsilon_millionths = 0;
  std::uint64_t seed = 0;
  std::vector<NeedSets> needs;
  std::vector<std::int64_t> inbound;   ///< by node: distinct remote chunks its ranks need; empty without need sets
  std::vector<std::int64_t> outbound;  ///< by node: (chunk, other node) pairs its chunks are sent to
  Traffic traffic;
  std::optional<TileWork> tile_work;      ///< of unit = tiles, where known
  std::optional<ResidueLattice> residue;  ///< of bound_by = residue; files before version 3 have none
  friend bool operator==(const PlanRecord&, const PlanRecord&) = default;
};

/// Chunk -> rank with its certificate. Immutable; two plans with one digest are the same plan.
class Plan {
 public:
  Plan() = default;
  /// Checks that the record contradicts itself nowhere (extents, every chunk on a rank, chunk counts that differ by at
  /// most one, loads, peak, bound <= peak, traffic) and throws invalid_argument naming the field otherwise.
  explicit Plan(PlanRecord record);

  [[nodiscard]] const PlanRecord& record() const { return record_; }
  [[nodiscard]] std::int64_t columns() const { return record_.columns; }
  [[nodiscard]] std::int64_t chunk() const { return record_.chunk; }
  [[nodiscard]] std::int64_t chunks() const { return static_cast<std::int64_t>(record_.assignment.size()); }
  [[nodiscard]] std::int64_t ranks() const { return record_.ranks; }
  [[nodiscard]] std::int64_t nodes() const { return record_.nodes; }
  [[nodiscard]] PlanKind kind() const { return record_.kind; }
  [[nodiscard]] std::span<const std::int64_t> assignment() const { return record_.assignment; }
  [[nodiscard]] std::int64_t rank_of_chunk(std::int64_t c) const {
    return record_.assignment[static_cast<std::size_t>(c)];
  }
  /// Ascending.
  [[nodiscard]] std::span<const std::int64_t> chunks_of(std::int64_t rank) const;
  /// Token rows a rank owns.
  [[nodiscard]] std::int64_t rows_of(std::int64_t rank) const;
  [[nodiscard]] std::int64_t node_of_rank(std::int64_t rank) const { return rank * record_.nodes / record_.ranks; }
  [[nodiscard]] std::int64_t chunk_begin(std::int64_t c) const { return c * record_.chunk; }
  [[nodiscard]] std::int64_t chunk_end(std::int64_t c) const;

  [[nodiscard]] std::span<const std::int64_t> loads() const { return record_.loads; }
  [[nodiscard]] std::int64_t peak() const { return record_.peak; }
  [[nodiscard]] std::int64_t lower_bound() const { return record_.lower_bound; }
  [[nodiscard]] bool proven_optimal() const { return record_.proven_optimal; }
  [[nodiscard]] PlanMethod method() const { return record_.method; }
  /// Peak over the average rank load (with speeds: over the ideal time), 1 when there is no load. For people, not part
  /// of the certificate.
  [[nodiscard]] double imbalance() const;
  /// peak / lower_bound - 1, 0 when proven optimal. For people.
  [[nodiscard]] double gap() const;

  [[nodiscard]] const Traffic& traffic() const { return record_.traffic; }
  /// Keys and values of one forward gather (weighted over masks) for `kv_heads` of `head_dim` elements.
  [[nodiscard]] TrafficBytes bytes(std::int64_t kv_heads, std::int64_t head_dim, std::int64_t element_bytes) const;

  /// 64-bit digest over every field of the record.
  [[nodiscard]] std::uint64_t digest() const { return digest_; }
  friend bool operator==(const Plan& a, const Plan& b) { return a.record_ == b.record_; }
  /// Declared below; its traffic was counted a moment ago and need not be counted again.
  friend Plan balance(const Workload& workload, const BalanceOptions& options);

 private:
  enum class Traffics : std::uint8_t { recounted, as_counted };
  Plan(PlanRecord record, Traffics traffics);

  PlanRecord record_;
  std::vector<std::int64_t> offsets_;  // by rank, into owned_
  std::vector<std::int64_t> owned_;
  std::uint64_t digest_ = 0;
};

/// Digest of a record, field by field in the order of PlanRecord.
std::uint64_t plan_digest(const PlanRecord& record);
/// Name of the first field in which two plans differ with both values, e.g. "ranks: 4 != 8"; empty when equal.
std::string first_difference(const Plan& a, const Plan& b);

/// Throws invalid_argument naming the field unless `workload` can be planned.
void validate(const Workload& workload);
/// Throws invalid_argument naming the option.
void validate(const BalanceOptions& options);

/// Plans `workload`. Every rank gets floor(chunks / ranks) chunks and the chunks % ranks fastest ranks one more, of
/// equal ones those with lower numbers (without speeds: the first). Peak, bound and proof are those of this problem,
/// with the number of chunks of every rank fixed: with speeds, another choice of the ranks that hold one more may have
/// a smaller optimum (loads 10, 1, 1 at speeds 100, 90: 11, and 10 if the slower rank held two), but exchanging the
/// speeds of ranks exchanges their loads and never changes a peak on one node. Deterministic for given workload and
/// options without a time budget. Thread safe. Throws invalid_argument for a workload or option out of range and
/// unsupported where a layout cannot hold the sizes.
Plan balance(const Workload& workload, const BalanceOptions& options = {});

}  // namespace flashmask
