// Ranks as threads of one process: the state they share. The protocol above runs unchanged on it, with real flags in
// real memory; what it adds over any network is that messages can be delayed, dropped or reordered on purpose, and that
// an Interleaver can decide which thread runs next.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/local/interleaver.hpp"
#include "flashmask/communicator.hpp"

namespace flashmask::comm {

/// What happens to one message (a put or a signal).
struct Fault {
  enum class Kind : std::uint8_t {
    none,     ///< delivered at once
    late,     ///< delivered after `delay`, and so is everything behind it on the stream
    dropped,  ///< never delivered
    held,     ///< overtaken by the next message of the stream (reordered)
  };
  Kind kind = Kind::none;
  std::chrono::milliseconds delay{0};
};

struct MessageInfo {
  std::int32_t from = 0;
  std::int32_t to = 0;
  Tag tag;
  std::size_t bytes = 0;  ///< 0 for a signal
  std::uint64_t value = 0;
};

struct LocalOptions {
  std::int32_t ranks = 1;
  std::int32_t nodes = 1;                             ///< rank r lives on node r * nodes / ranks
  std::chrono::milliseconds deadline{30'000};         ///< of every wait for a message
  std::chrono::milliseconds setup_deadline{120'000};  ///< of collective set-up calls: ranks may start far apart
  std::function<Fault(const MessageInfo&)> faults;    ///< asked for every message, from several threads; empty: none
  Interleaver* interleaver = nullptr;                 ///< decides who runs; deadlocks are then found at once
};

/// A place where threads wait for something that other threads bring about.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
};

struct WordBlock {
  explicit WordBlock(std::int64_t n) : words(static_cast<std::size_t>(n)) {}
  std::vector<std::atomic<std::uint64_t>> words;
};

struct Buffer {
  explicit Buffer(std::size_t n);
  std::unique_ptr<std::byte[], void (*)(std::byte*)> data;
  std::size_t bytes;
};

/// LinkCounters that several threads may add to.
struct AtomicCounters {
  std::array<std::array<std::atomic<std::int64_t>, kLinks>, kStages> bytes{}, messages{};
  void count(Tag tag, Link link, std::size_t n);
  [[nodiscard]] LinkCounters read() const;
};

class LocalWorld {
 public:
  explicit LocalWorld(LocalOptions options);

  [[nodiscard]] const LocalOptions& options() const { return options_; }
  [[nodiscard]] std::int32_t node_of(std::int32_t rank) const;
  [[nodiscard]] Gate& gate(std::int32_t rank) { return *gates_[static_cast<std::size_t>(rank)]; }

  [[nodiscard]] AtomicCounters& sent(std::int32_t rank) { return *sent_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] AtomicCounters& received(std::int32_t rank) { return *received_[static_cast<std::size_t>(rank)]; }

  /// Blocks until `ready`; throws a timeout Error with `describe()` past the deadline and cancels the world, or an
  /// Error with the first reason once the world is cancelled.
  void block(Gate& gate, std::int32_t rank, const std::function<bool()>& ready,
             const std::function<std::string()>& describe);
  /// Wakes whoever waits at `gate`. What they wait for must already have been stored.
  static void notify(Gate& gate);
  /// Tells the interleaver that a visible action comes next.
  void step();

  void cancel(const std::string& reason);
  [[nodiscard]] bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string reason() const;
  /// Wakes a stream's thread on cancellation as well; called with the stream's own gate.
  void watch(Gate* gate);
  void unwatch(Gate* gate);

  /// Everybody deposits an object; returns all of them in rank order once the last has come. `round` counts this rank's
  /// calls, so rounds never mix.
  std::vector<std::shared_ptr<void>> exchange(std::int32_t rank, std::uint64_t round, std::shared_ptr<void> mine);

 private:
  [[nodiscard]] std::string describe_waits(const std::function<std::string()>& mine) const;

  struct Round {
    std::vector<std::shared_ptr<void>> objects;
    std::int32_t arrived = 0;
    std::int32_t left = 0;
  };
  LocalOptions options_;
  std::vector<std::unique_ptr<Gate>> gates_;
  std::vector<std::unique_ptr<AtomicCounters>> sent_, received_;
  Gate rounds_gate_;
  std::map<std::uint64_t, Round> rounds_;
  std::atomic<bool> cancelled_{false};
  mutable std::mutex reason_mutex_;
  std::string reason_;
  std::vector<Gate*> watched_;
  mutable std::mutex waits_mutex_;
  std::list<const std::function<std::string()>*> waits_;
};

/// One rank's communicator in `world`, which must outlive it. Make one per rank, use it from that rank's thread.
std::unique_ptr<Communicator> make_local(LocalWorld& world, std::int32_t rank);

/// Runs body(communicator) for every rank on a thread of its own; a rank that throws cancels the world, so that all
/// return. Returns what each rank threw (null: nothing).
std::vector<std::exception_ptr> run_ranks(LocalWorld& world, const std::function<void(Communicator&)>& body);
/// The same; rethrows the error that came first in rank order, preferring one that is not an echo of another's.
void run_ranks_or_throw(LocalWorld& world, const std::function<void(Communicator&)>& body);

}  // namespace flashmask::comm
