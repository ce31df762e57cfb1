// Predicts a step on a described cluster from the very schedules the runtime executes (docs/overlap.md states the
// model).
//
// Attention is a pool of SMs that take row blocks (forward) or column blocks (backward) of one unsplit kernel and wait
// chunk by chunk; communication is two lanes a rank, each serial at both ends. No constant is fitted to an outcome.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "flashmask/balance.hpp"
#include "flashmask/mask.hpp"
#include "overlap/schedule.hpp"

namespace flashmask::overlap {

/// Seconds of one SM for one 128 x 128 tile of one query head.
struct TileSeconds {
  double partial = 0;
  double unmasked = 0;
};

struct Cluster {
  std::int32_t sms = 132;
  std::int32_t communication_sms = 8;  ///< taken from attention while communication overlaps with it
  TileSeconds forward, backward;
  std::array<double, kLinks> bandwidth{};  ///< bytes per second of a rank in each direction; inside, between
  std::array<double, kLinks> latency{};    ///< seconds of a transfer
  double sum_bandwidth = 1e12;             ///< bytes per second of adding a partial into another
  double launch = 5e-6;                    ///< seconds before a kernel or collective begins
};

/// Throws invalid_argument naming the member unless every number is positive and finite (latencies may be zero).
void validate(const Cluster& cluster);

/// The problem's extents; the mask gives batch, mask heads and tokens.
struct SimulatedShape {
  std::int64_t query_heads = 64;
  std::int64_t kv_heads = 8;
  std::int64_t head_dim = 128;
  std::int64_t key_bytes = 2;       ///< of an element of K and V
  std::int64_t gradient_bytes = 4;  ///< of an element of a partial dK and dV
};

enum class Overlapping : std::uint8_t {
  on,   ///< attention waits chunk by chunk; partials leave as they complete
  off,  ///< gather, then attention, then reduce
};

struct SimulateOptions {
  Overlapping overlapping = Overlapping::on;
  Pruning pruning = Pruning::on;
  ScheduleOptions schedule;
};

/// A transfer or a stretch of attention on a rank's timeline, in seconds from the start of the pass.
struct Span {
  enum class Kind : std::uint8_t { attention, gather, reduce };
  Kind kind = Kind::attention;
  Link link = Link::inside;  ///< of gather and reduce: the sender's lane
  double begin = 0;
  double end = 0;
};

struct RankTimeline {
  double compute = 0;  ///< attention alone, on the SMs it has
  double attention_end = 0;
  double end = 0;  ///< of everything the rank needs of the pass
  std::vector<Span> spans;
};

struct PassTimeline {
  std::vector<RankTimeline> ranks;
  double time = 0;           ///< last end
  double compute = 0;        ///< largest attention alone
  double communication = 0;  ///< the same transfers with nothing to wait for but each other
  [[nodiscard]] double exposed() const { return time - compute; }
  /// 1 - exposed / communication; 1 when nothing is communicated.
  [[nodiscard]] double efficiency() const { return communication > 0 ? 1 - exposed() / communication : 1; }
};

struct StepTimeline {
  PassTimeline forward, backward;
  std::array<std::int64_t, kLinks> bytes{};  ///< of both passes over all ranks
  [[nodiscard]] double time() const { return forward.time + backward.time; }
};

StepTimeline simulate(const ColumnMask& mask, const Plan& plan, const SimulatedShape& shape, const Cluster& cluster,
                      const SimulateOptions& options);

}  // namespace flashmask::overlap
