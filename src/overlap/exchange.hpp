// Runs the schedules of one rank on a communicator: queues what it sends, passes on and sums, call after call.
//
// Protocol of a call with epoch e (docs/overlap.md):
//   pack own chunks, announce them -> streams put and pass on -> attention awaits chunks -> announces finished
//   gradients
//   -> streams put, sum and put partials -> every rank tells those that wrote into it that it has read everything.
// A rank writes into a peer's buffers in call e only after the peer released call e - 1. All words only grow.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "flashmask/communicator.hpp"
#include "overlap/routes.hpp"

namespace flashmask::overlap {

class Exchange {
 public:
  /// Collective: allocates buffers and words. `key_row_bytes` and `gradient_row_floats` are keys and values of one
  /// token.
  Exchange(Communicator& communicator, std::shared_ptr<const Routes> routes, std::size_t key_row_bytes,
           std::size_t gradient_row_floats);
  /// Waits for what others still expect of this rank.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Waits until this rank's streams have passed the last call, so that its own slots may be packed again.
  void begin_call();
  /// Own chunks lie in their slots: announces them and queues puts and relays.
  void start_gather();
  /// Queues partials, sums and crossings; they wait for `finish_columns`.
  void start_reduce();
  /// The attention of the call is over: queues the releases.
  void end_call();
  /// Until the sums of the own chunks are complete. After start_reduce.
  void await_sums();

  /// Blocks until the chunk's keys and values of the last gather can be read. Any thread.
  void await_chunk(std::int32_t b, std::int32_t c);
  /// dK and dV of `rows` more columns of the chunk are final. Any thread.
  void finish_columns(std::int32_t b, std::int32_t c, std::int64_t rows);

  [[nodiscard]] std::byte* keys(std::int32_t b, std::int32_t c);  ///< slot of a chunk
  [[nodiscard]] std::byte* keys() { return communicator_.buffer(keys_); }
  [[nodiscard]] float* gradients();  ///< laid out like the keys
  [[nodiscard]] float* gradients(std::int32_t b, std::int32_t c);
  [[nodiscard]] const RankSlots& slots() const { return layout_.slots[static_cast<std::size_t>(rank_)]; }
  [[nodiscard]] const GatherSchedule& gather() const { return gather_; }
  [[nodiscard]] const ReduceSchedule& reduce() const { return reduce_; }
  [[nodiscard]] std::size_t buffer_bytes() const;

 private:
  using Epoch = std::uint64_t;
  [[nodiscard]] Word word(std::int64_t index) const { return {words_, index}; }
  void before_first_put(Stream& stream, std::vector<bool>& asked, std::int32_t peer);
  void queue_gather_put(const Transfer& t, Stream& stream);
  void queue_reduce_put(const Transfer& t, bool combined, Stream& stream);
  void queue_combine(const Combine& combine);
  void expect_all(const std::vector<Transfer>& transfers, Stage stage);

  Communicator& communicator_;
  const std::shared_ptr<const Routes> routes_;
  const Owners& owners_;  ///< these five of routes_
  const RankNeeds& needs_;
  const GatherSchedule& gather_;
  const ReduceSchedule& reduce_;
  const Layout& layout_;
  const std::int32_t rank_;
  const std::size_t key_row_bytes_;
  const std::size_t gradient_row_floats_;
  WordLayout word_layout_;
  std::int32_t words_ = -1, keys_ = -1, gradients_ = -1, inbound_ = -1;
  std::vector<std::vector<std::atomic<std::int64_t>>> unfinished_;  ///< [batch][chunk]: columns, in this call
  std::vector<std::vector<std::atomic<Epoch>>> seen_;               ///< [batch][chunk]: gathers known to have arrived
  Epoch epoch_ = 0;
  Epoch gather_epoch_ = 0;
  bool reducing_ = false;
  std::vector<bool> asked_[kLinks];
  std::unique_ptr<Stream> lanes_[kLinks];
  std::unique_ptr<Stream> sums_;
};

}  // namespace flashmask::overlap
