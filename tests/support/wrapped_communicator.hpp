// A communicator that passes everything on, for tests that change one thing on the way.
#pragma once

#include "flashmask/communicator.hpp"

namespace flashmask::testing {

class WrappedCommunicator : public Communicator {
 public:
  explicit WrappedCommunicator(Communicator& inner) : inner_(inner) {}

  [[nodiscard]] std::int32_t rank() const override { return inner_.rank(); }
  [[nodiscard]] std::int32_t size() const override { return inner_.size(); }
  [[nodiscard]] std::int32_t node_of(std::int32_t rank) const override { return inner_.node_of(rank); }
  std::int32_t allocate_buffer(std::size_t bytes) override { return inner_.allocate_buffer(bytes); }
  std::byte* buffer(std::int32_t id) override { return inner_.buffer(id); }
  void free_buffer(std::int32_t id) override { inner_.free_buffer(id); }
  std::int32_t allocate_words(std::int64_t count) override { return inner_.allocate_words(count); }
  void free_words(std::int32_t block) override { inner_.free_words(block); }
  void* word_address(Word word) override { return inner_.word_address(word); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override { inner_.all_gather(mine, all); }
  std::unique_ptr<Stream> make_stream(std::string_view name) override { return inner_.make_stream(name); }
  void put(Stream& stream, const Put& put) override { inner_.put(stream, put); }
  void expect(Stream& stream, const Put& put) override { inner_.expect(stream, put); }
  void signal(Stream& stream, std::int32_t peer, Word word, std::uint64_t value, Tag tag) override {
    inner_.signal(stream, peer, word, value, tag);
  }
  void wait(Stream& stream, const Wait& wait) override { inner_.wait(stream, wait); }
  void add(Stream& stream, float* into, const float* from, std::size_t count) override {
    inner_.add(stream, into, from, count);
  }
  void synchronise(Stream& stream) override { inner_.synchronise(stream); }
  void announce(Word word, std::uint64_t value) override { inner_.announce(word, value); }
  void await(const Wait& wait) override { inner_.await(wait); }
  void cancel(const std::string& reason) override { inner_.cancel(reason); }
  [[nodiscard]] LinkCounters sent() const override { return inner_.sent(); }
  [[nodiscard]] LinkCounters received() const override { return inner_.received(); }

 private:
  Communicator& inner_;
};

}  // namespace flashmask::testing
