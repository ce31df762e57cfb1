// What context parallelism asks of a transport: symmetric buffers, stream-ordered puts, and 64-bit progress words.
//
// A backend moves bytes; it knows nothing of masks or attention. All work is queued on streams and runs in stream
// order; a put stores its word at the peer only after its bytes can be read there. Words only grow (they carry the
// epoch of a call and are never reset), so "has it arrived" is one comparison. Every wait has a deadline and its error
// names the rank, the stage, the chunk, and the word's expected and seen values.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace flashmask {

/// What a message or a wait belongs to; counters are kept by stage.
enum class Stage : std::uint8_t { gather, reduce, control };
inline constexpr std::size_t kStages = 3;
std::string_view to_string(Stage stage);

/// inside: both ranks on one node. between: the message crosses a node border.
enum class Link : std::uint8_t { inside, between };
inline constexpr std::size_t kLinks = 2;
std::string_view to_string(Link link);

/// Names what moves, for errors and counters. batch and chunk are -1 where a message is about neither.
struct Tag {
  Stage stage = Stage::control;
  std::int32_t batch = -1;
  std::int32_t chunk = -1;
};

/// A 64-bit word of a block that every rank holds at the same index.
struct Word {
  std::int32_t block = -1;
  std::int64_t index = 0;
};

/// Copies `bytes` from local memory to `offset` in the peer's part of a symmetric buffer, then stores `value` in the
/// peer's `word`. The source must stay unchanged until the stream has passed the put.
struct Put {
  std::int32_t peer = 0;
  std::int32_t buffer = -1;
  std::size_t offset = 0;
  const std::byte* source = nullptr;
  std::size_t bytes = 0;
  Word word;
  std::uint64_t value = 0;
  Tag tag;
};

/// "word >= value", and whom to blame when it does not come true.
struct Wait {
  Word word;
  std::uint64_t value = 0;
  std::int32_t from = 0;  ///< the rank that is expected to store it
  Tag tag;
};

/// Bytes and messages by stage and link; signals count as messages of their stage without bytes.
struct LinkCounters {
  std::array<std::array<std::int64_t, kLinks>, kStages> bytes{};
  std::array<std::array<std::int64_t, kLinks>, kStages> messages{};
  [[nodiscard]] std::int64_t bytes_of(Stage stage, Link link) const {
    return bytes[static_cast<std::size_t>(stage)][static_cast<std::size_t>(link)];
  }
  friend bool operator==(const LinkCounters&, const LinkCounters&) = default;
};

/// An ordered queue of work, opaque to everything but the backend that made it.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;
};

/// One rank's end of the transport. Set-up calls (allocate, all_gather) are collective: every rank makes them in the
/// same order. Queueing calls are for one thread at a time per stream; announce and await are safe from any thread.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] virtual std::int32_t rank() const = 0;
  [[nodiscard]] virtual std::int32_t size() const = 0;
  [[nodiscard]] virtual std::int32_t node_of(std::int32_t rank) const = 0;
  [[nodiscard]] Link link_to(std::int32_t peer) const {
    return node_of(rank()) == node_of(peer) ? Link::inside : Link::between;
  }

  /// Collective. A buffer of which this rank holds `bytes` (ranks may ask for different sizes); returns its id.
  virtual std::int32_t allocate_buffer(std::size_t bytes) = 0;
  /// This rank's part. 64-byte aligned.
  virtual std::byte* buffer(std::int32_t id) = 0;
  /// Collective in number, not in time: the memory goes when every rank has freed it.
  virtual void free_buffer(std::int32_t id) = 0;
  /// Collective. `count` words per rank, the same on every rank, all zero; returns the block.
  virtual std::int32_t allocate_words(std::int64_t count) = 0;
  virtual void free_words(std::int32_t block) = 0;
  /// Where this rank's copy of the word lives, for kernels that poll or announce by themselves.
  virtual void* word_address(Word word) = 0;

  /// Collective. Everybody's `mine` (equal sizes), in rank order, into `all`; for set-up and checks, not for tensors.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  virtual std::unique_ptr<Stream> make_stream(std::string_view name) = 0;
  virtual void put(Stream& stream, const Put& put) = 0;
  /// The receiving side of a put whose `peer` is the sender: what a two-sided transport needs; one-sided ones ignore
  /// it.
  virtual void expect(Stream& stream, const Put& put) = 0;
  /// Stores `value` in the peer's word, after everything queued before it.
  virtual void signal(Stream& stream, std::int32_t peer, Word word, std::uint64_t value, Tag tag) = 0;
  /// Holds the stream until the word has come.
  virtual void wait(Stream& stream, const Wait& wait) = 0;
  /// into[i] += from[i], in stream order.
  virtual void add(Stream& stream, float* into, const float* from, std::size_t count) = 0;
  /// Blocks the caller until the stream is empty; throws what went wrong on it.
  virtual void synchronise(Stream& stream) = 0;

  /// Stores `value` in this rank's own word with release order: local progress that the rank's streams wait for.
  virtual void announce(Word word, std::uint64_t value) = 0;
  /// Blocks the caller until the word has come, with acquire order.
  virtual void await(const Wait& wait) = 0;

  /// Ends every wait on every rank with an error that carries `reason`; the first reason wins. The communicator is of
  /// no use afterwards.
  virtual void cancel(const std::string& reason) = 0;

  /// What this rank sent and received so far.
  [[nodiscard]] virtual LinkCounters sent() const = 0;
  [[nodiscard]] virtual LinkCounters received() const = 0;
};

}  // namespace flashmask
