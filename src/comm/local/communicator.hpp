// One rank of a local world: its stream threads and its view of everybody's buffers and words.
#pragma once

#include <deque>
#include <thread>

#include "comm/local/world.hpp"

namespace flashmask::comm {

/// A thread that runs queued work in order. The thread starts with the first piece of work. After a failure the rest is
/// discarded and the failure is rethrown by synchronise().
class LocalStream final : public Stream {
 public:
  LocalStream(LocalWorld& world, std::int32_t rank, std::string name);
  ~LocalStream() override;

  void enqueue(std::function<void()> work);
  void synchronise();

  // For work that runs on the stream's thread.
  void hold(std::function<void()> delivery) { held_.push_back(std::move(delivery)); }
  void flush_held();  ///< delivers messages that a fault held back
  void sleep(std::chrono::milliseconds time);

 private:
  void run(std::size_t task);

  LocalWorld& world_;
  std::int32_t rank_;
  std::string name_;
  Gate gate_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool stop_ = false;
  bool ended_ = false;
  std::exception_ptr failure_;
  std::vector<std::function<void()>> held_;
  std::jthread thread_;
};

/// A word with what keeps it alive.
struct WordHandle {
  std::shared_ptr<WordBlock> block;
  std::atomic<std::uint64_t>* word = nullptr;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(LocalWorld& world, std::int32_t rank);

  [[nodiscard]] std::int32_t rank() const override { return rank_; }
  [[nodiscard]] std::int32_t size() const override { return world_.options().ranks; }
  [[nodiscard]] std::int32_t node_of(std::int32_t rank) const override { return world_.node_of(rank); }

  std::int32_t allocate_buffer(std::size_t bytes) override;
  std::byte* buffer(std::int32_t id) override;
  void free_buffer(std::int32_t id) override;
  std::int32_t allocate_words(std::int64_t count) override;
  void free_words(std::int32_t block) override;
  void* word_address(Word word) override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;

  std::unique_ptr<Stream> make_stream(std::string_view name) override;
  void put(Stream& stream, const Put& put) override;
  void expect(Stream& stream, const Put& put) override;
  void signal(Stream& stream, std::int32_t peer, Word word, std::uint64_t value, Tag tag) override;
  void wait(Stream& stream, const Wait& wait) override;
  void add(Stream& stream, float* into, const float* from, std::size_t count) override;
  void synchronise(Stream& stream) override;

  void announce(Word word, std::uint64_t value) override;
  void await(const Wait& wait) override;
  void cancel(const std::string& reason) override { world_.cancel(reason); }
  [[nodiscard]] LinkCounters sent() const override;
  [[nodiscard]] LinkCounters received() const override;

 private:
  struct Message {
    Put put;
    std::shared_ptr<Buffer> buffer;  ///< the peer's; null for a signal
    WordHandle word;
  };
  using Buffers = std::vector<std::shared_ptr<Buffer>>;    // by rank; empty: freed
  using Blocks = std::vector<std::shared_ptr<WordBlock>>;  // by rank

  [[nodiscard]] WordHandle word(std::int32_t rank, Word word) const;
  void send(LocalStream& stream, const Message& message);
  void deliver(const Message& message, const std::byte* data);
  void await(const WordHandle& handle, const Wait& wait);

  LocalWorld& world_;
  std::int32_t rank_;
  std::uint64_t round_ = 0;
  std::deque<Buffers> buffers_;
  std::deque<Blocks> blocks_;
};

}  // namespace flashmask::comm
