#include "comm/local/communicator.hpp"

#include <algorithm>
#include <cstring>

#include "core/check.hpp"

namespace flashmask::comm {
namespace {

std::size_t at(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

LocalStream& local(Stream& stream) {
  auto* s = dynamic_cast<LocalStream*>(&stream);
  core::check(s != nullptr, "the stream was made by another kind of communicator: use make_stream() of this one");
  return *s;
}

}  // namespace

LocalCommunicator::LocalCommunicator(LocalWorld& world, std::int32_t rank) : world_(world), rank_(rank) {
  core::check(rank >= 0 && rank < world.options().ranks, "rank = {}: this world has ranks 0 to {}", rank,
              world.options().ranks - 1);
}

std::int32_t LocalCommunicator::allocate_buffer(std::size_t bytes) {
  const auto all = world_.exchange(rank_, round_++, std::make_shared<Buffer>(bytes));
  Buffers& mine = buffers_.emplace_back();
  for (const auto& part : all) mine.push_back(std::static_pointer_cast<Buffer>(part));
  return static_cast<std::int32_t>(buffers_.size() - 1);
}

std::byte* LocalCommunicator::buffer(std::int32_t id) {
  core::check(id >= 0 && at(id) < buffers_.size() && !buffers_[at(id)].empty(), "buffer {} is not allocated", id);
  return buffers_[at(id)][at(rank_)]->data.get();
}

void LocalCommunicator::free_buffer(std::int32_t id) {
  (void)buffer(id);
  buffers_[at(id)].clear();
}

std::int32_t LocalCommunicator::allocate_words(std::int64_t count) {
  core::check(count >= 0, "count = {} words: allowed are 0 and more", count);
  const auto all = world_.exchange(rank_, round_++, std::make_shared<WordBlock>(count));
  Blocks& mine = blocks_.emplace_back();
  for (const auto& part : all) mine.push_back(std::static_pointer_cast<WordBlock>(part));
  for (std::size_t r = 0; r < mine.size(); ++r) {
    core::check(mine[r]->words.size() == static_cast<std::size_t>(count),
                "rank {} allocates {} words where rank {} allocates {}: set-up calls must agree", rank_, count, r,
                mine[r]->words.size());
  }
  return static_cast<std::int32_t>(blocks_.size() - 1);
}

void LocalCommunicator::free_words(std::int32_t block) {
  core::check(block >= 0 && at(block) < blocks_.size() && !blocks_[at(block)].empty(), "word block {} is not allocated",
              block);
  blocks_[at(block)].clear();
}

WordHandle LocalCommunicator::word(std::int32_t rank, Word word) const {
  core::check(word.block >= 0 && at(word.block) < blocks_.size() && !blocks_[at(word.block)].empty(),
              "word block {} is not allocated", word.block);
  const auto& block = blocks_[at(word.block)][at(rank)];
  core::check(word.index >= 0 && static_cast<std::size_t>(word.index) < block->words.size(),
              "word {} of block {}: it has {} words", word.index, word.block, block->words.size());
  return {block, &block->words[static_cast<std::size_t>(word.index)]};
}

void* LocalCommunicator::word_address(Word w) {
  return word(rank_, w).word;
}

void LocalCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  core::check(all.size() == mine.size() * static_cast<std::size_t>(size()), "all has {} bytes, needed are {} x {}",
              all.size(), size(), mine.size());
  const auto parts =
      world_.exchange(rank_, round_++, std::make_shared<std::vector<std::byte>>(mine.begin(), mine.end()));
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const auto& part = *std::static_pointer_cast<std::vector<std::byte>>(parts[r]);
    core::check(part.size() == mine.size(), "rank {} gathers {} bytes where rank {} gives {}", rank_, mine.size(), r,
                part.size());
    std::copy(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(r * mine.size()));
  }
}

std::unique_ptr<Stream> LocalCommunicator::make_stream(std::string_view name) {
  return std::make_unique<LocalStream>(world_, rank_, std::string(name));
}

void LocalCommunicator::deliver(const Message& message, const std::byte* data) {
  if (message.put.bytes > 0) std::memcpy(message.buffer->data.get() + message.put.offset, data, message.put.bytes);
  world_.step();  // the bytes are there, the word is not: others may look in between
  world_.received(message.put.peer).count(message.put.tag, link_to(message.put.peer), message.put.bytes);
  message.word.word->store(message.put.value, std::memory_order_release);
  LocalWorld::notify(world_.gate(message.put.peer));
}

void LocalCommunicator::send(LocalStream& stream, const Message& message) {
  world_.step();
  const Put& put = message.put;
  if (put.peer == rank_) {  // a signal to oneself crosses no link
    message.word.word->store(put.value, std::memory_order_release);
    LocalWorld::notify(world_.gate(rank_));
    return;
  }
  world_.sent(rank_).count(put.tag, link_to(put.peer), put.bytes);
  const auto& faults = world_.options().faults;
  const Fault fault = faults ? faults({rank_, put.peer, put.tag, put.bytes, put.value}) : Fault{};
  if (fault.kind == Fault::Kind::dropped) return;
  if (fault.kind == Fault::Kind::held) {
    auto copy = std::make_shared<std::vector<std::byte>>(put.source, put.source + put.bytes);
    stream.hold([this, message, copy] { deliver(message, copy->data()); });
    return;
  }
  if (fault.kind == Fault::Kind::late) stream.sleep(fault.delay);
  deliver(message, put.source);
  stream.flush_held();
}

void LocalCommunicator::put(Stream& stream, const Put& put) {
  core::check(put.peer >= 0 && put.peer < size() && put.peer != rank_,
              "put to rank {} from rank {}: allowed are the others of {}", put.peer, rank_, size());
  core::check(put.buffer >= 0 && at(put.buffer) < buffers_.size() && !buffers_[at(put.buffer)].empty(),
              "buffer {} is not allocated", put.buffer);
  const auto& buffer = buffers_[at(put.buffer)][at(put.peer)];
  core::check(put.offset <= buffer->bytes && put.bytes <= buffer->bytes - put.offset,
              "put of {} bytes at {} into {} bytes of rank {}", put.bytes, put.offset, buffer->bytes, put.peer);
  LocalStream& on = local(stream);
  on.enqueue([this, &on, message = Message{put, buffer, word(put.peer, put.word)}] { send(on, message); });
}

void LocalCommunicator::expect(Stream&, const Put&) {}  // a put needs no help from its receiver here

void LocalCommunicator::signal(Stream& stream, std::int32_t peer, Word w, std::uint64_t value, Tag tag) {
  Put put;
  put.peer = peer;
  put.word = w;
  put.value = value;
  put.tag = tag;
  LocalStream& on = local(stream);
  on.enqueue([this, &on, message = Message{put, nullptr, word(peer, w)}] { send(on, message); });
}

void LocalCommunicator::await(const WordHandle& handle, const Wait& wait) {
  const std::atomic<std::uint64_t>& w = *handle.word;
  const auto describe = [&] {
    const std::string chunk =
        wait.tag.chunk < 0 ? "" : core::format("chunk {} of batch row {} from ", wait.tag.chunk, wait.tag.batch);
    return core::format("rank {} waits in stage {} for {}rank {} (word {}: expected {}, seen {})", rank_,
                       to_string(wait.tag.stage), chunk, wait.from, wait.word.index, wait.value,
                       w.load(std::memory_order_acquire));
  };
  world_.block(
      world_.gate(rank_), rank_, [&] { return w.load(std::memory_order_acquire) >= wait.value; }, describe);
}

void LocalCommunicator::await(const Wait& wait) {
  await(word(rank_, wait.word), wait);
}

void LocalCommunicator::wait(Stream& stream, const Wait& wait) {
  LocalStream& on = local(stream);
  on.enqueue([this, &on, wait, handle = word(rank_, wait.word)] {
    on.flush_held();
    await(handle, wait);
  });
}

void LocalCommunicator::add(Stream& stream, float* into, const float* from, std::size_t count) {
  local(stream).enqueue([into, from, count] {
    for (std::size_t i = 0; i < count; ++i) into[i] += from[i];
  });
}

void LocalCommunicator::synchronise(Stream& stream) {
  local(stream).synchronise();
}

void LocalCommunicator::announce(Word w, std::uint64_t value) {
  world_.step();
  word(rank_, w).word->store(value, std::memory_order_release);
  LocalWorld::notify(world_.gate(rank_));
}

LinkCounters LocalCommunicator::sent() const {
  return world_.sent(rank_).read();
}
LinkCounters LocalCommunicator::received() const {
  return world_.received(rank_).read();
}

std::unique_ptr<Communicator> make_local(LocalWorld& world, std::int32_t rank) {
  return std::make_unique<LocalCommunicator>(world, rank);
}

}  // namespace flashmask::comm
