// Exact masked attention over ranks: every rank owns some chunks of rows with their keys and values (docs/overlap.md).
//
// Forward: each rank gathers the keys and values its rows can see, and nothing else. Backward: the partial dK and dV of
// what it gathered go back to their owners. Both overlap with one attention call that waits chunk by chunk.
//
// Local tensors are views [batch][local rows][heads][head_dim]; local rows are the rank's chunks in ascending order,
// the same for every batch row. LSE is float32 [batch][query heads][local rows].
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "flashmask/attention.hpp"
#include "flashmask/balance.hpp"
#include "flashmask/communicator.hpp"
#include "flashmask/mask.hpp"

namespace flashmask {

/// How a chunk reaches the ranks of another node.
enum class Routing : std::uint8_t {
  hierarchical,  ///< once to the node, then forwarded inside it
  direct,        ///< once to every rank that needs it (for comparison)
};

/// Which rank of a node receives a chunk from outside.
enum class Landing : std::uint8_t {
  balanced,  ///< of those that need it, the one that has landed the fewest rows so far
  lowest,    ///< of those that need it, the one with the lowest number
};

/// In which order a rank visits the columns it sees. Either way results depend on plan and mask alone, never on timing.
enum class VisitOrder : std::uint8_t {
  planned,    ///< own chunks first, then in planned order of arrival; backward: remote chunks finish first
  ascending,  ///< by column: O and LSE are bitwise those of one rank where the chunk size is a multiple of 64
};

struct ContextParallelOptions {
  bool prune = true;  ///< false moves every chunk to every rank (for comparison)
  Routing routing = Routing::hierarchical;
  Landing landing = Landing::balanced;
  VisitOrder visit_order = VisitOrder::planned;
  bool keep_keys = false;  ///< a backward right after its forward uses the keys and values that one gathered
  int threads = 1;         ///< cpu backend, per rank; 0 = one per core
};

/// Extents of the whole problem, equal on every rank. rows = columns = the plan's columns.
struct ContextParallelShape {
  std::int64_t batch = 1;
  std::int64_t query_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 0;
  DType dtype = DType::bf16;
};

/// What one rank moves in one pass, from the schedule (before anything runs).
struct PlannedTraffic {
  std::array<std::int64_t, kLinks> gather_bytes{};  ///< sent; inside a node, between nodes
  std::array<std::int64_t, kLinks> reduce_bytes{};
  std::int64_t chunks_needed = 0;  ///< (batch row, chunk) pairs whose keys this rank reads, own ones included
  std::int64_t chunks_pruned = 0;  ///< pairs it does not
  std::int64_t buffer_bytes = 0;   ///< of symmetric memory this rank holds
};

namespace overlap {
struct Routes;
}

/// What follows from mask, plan and options alone: need sets, schedules and layouts of every rank. A rank makes its own
/// unless it is given one; ranks that are threads of one process share one, which saves each the work for all (without
/// it, P such ranks take P times ranks x chunks).
class ContextParallelRoutes {
 public:
  /// Not collective. Throws invalid_argument unless `plan` deals the mask's tokens, as many rows as columns.
  ContextParallelRoutes(const ColumnMask& mask, const Plan& plan, const ContextParallelOptions& options = {});

 private:
  friend class ContextParallel;
  std::shared_ptr<const overlap::Routes> routes_;
};

/// One rank's attention. All ranks construct it together and make the same sequence of calls. Not for several threads
/// at once; several objects may share a communicator.
class ContextParallel {
 public:
  /// Collective. `mask` is the global mask (rows = columns = plan.columns()), `plan` cuts and deals it. Throws
  /// invalid_argument for what does not fit together, and, naming the first field that differs, when ranks disagree on
  /// mask, plan, shape or options.
  ContextParallel(const ColumnMask& mask, const Plan& plan, Communicator& communicator,
                  const ContextParallelShape& shape, const ContextParallelOptions& options = {});
  /// The same with routes made before, of this mask, plan and options; others are refused.
  ContextParallel(const ColumnMask& mask, const Plan& plan, Communicator& communicator,
                  const ContextParallelShape& shape, const ContextParallelOptions& options,
                  const ContextParallelRoutes& routes);
  ContextParallel(ContextParallel&&) noexcept;
  ContextParallel& operator=(ContextParallel&&) noexcept;
  ~ContextParallel();

  [[nodiscard]] std::int64_t local_rows() const;
  [[nodiscard]] std::uint64_t plan_digest() const;
  [[nodiscard]] PlannedTraffic planned() const;

  /// out and lse of the local rows; returns when they are written. `out` may be float32 when the inputs are not.
  void forward(TensorView q, TensorView k, TensorView v, MutableTensorView out, float* lse,
               std::optional<float> scale = {});
  /// dq, dk and dv of the local rows and columns from a forward's out and lse; float32 or the inputs' dtype.
  void backward(TensorView q, TensorView k, TensorView v, TensorView out, TensorView dout, const float* lse,
                MutableTensorView dq, MutableTensorView dk, MutableTensorView dv, std::optional<float> scale = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flashmask
