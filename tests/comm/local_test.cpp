// Ranks as threads: messages arrive whole and counted, faults end in errors that say who waits for what of whom.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "comm/local/world.hpp"
#include "flashmask/error.hpp"

namespace flashmask::comm {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

/// Every rank puts a block of numbers into every other rank's buffer and waits for all of theirs.
void exchange_blocks(Communicator& c, int calls) {
  constexpr std::size_t kCount = 100;
  const auto block_bytes = kCount * sizeof(std::uint64_t);
  const auto buffer = c.allocate_buffer(block_bytes * c.size());
  const auto arrived = c.allocate_words(c.size());
  const auto released = c.allocate_words(c.size());
  const auto stream = c.make_stream("test");
  std::vector<std::uint64_t> mine(kCount);
  for (std::uint64_t epoch = 1; epoch <= static_cast<std::uint64_t>(calls); ++epoch) {
    c.synchronise(*stream);
    std::iota(mine.begin(), mine.end(), 1000 * c.rank() + epoch);
    for (std::int32_t peer = 0; peer < c.size(); ++peer) {
      if (peer == c.rank()) continue;
      const Tag tag{Stage::gather, 0, c.rank()};
      if (epoch > 1) c.wait(*stream, {{released, peer}, epoch - 1, peer, {Stage::control, -1, -1}});
      c.put(*stream, {peer,
                      buffer,
                      c.rank() * block_bytes,
                      reinterpret_cast<const std::byte*>(mine.data()),
                      block_bytes,
                      {arrived, c.rank()},
                      epoch,
                      tag});
    }
    for (std::int32_t peer = 0; peer < c.size(); ++peer) {
      if (peer == c.rank()) continue;
      c.await({{arrived, peer}, epoch, peer, {Stage::gather, 0, peer}});
      std::vector<std::uint64_t> seen(kCount);
      std::memcpy(seen.data(), c.buffer(buffer) + peer * block_bytes, block_bytes);
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(seen[i], 1000U * peer + epoch + i) << "rank " << c.rank();
      c.signal(*stream, peer, {released, c.rank()}, epoch, {Stage::control, -1, -1});
    }
  }
  c.synchronise(*stream);
}

TEST(LocalRanks, every_rank_reads_what_every_other_put_call_after_call) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    LocalOptions options;
    options.ranks = ranks;
    LocalWorld world(options);
    run_ranks_or_throw(world, [](Communicator& c) { exchange_blocks(c, 50); });
  }
}

TEST(LocalRanks, bytes_are_counted_by_stage_and_link_at_both_ends) {
  LocalOptions options;
  options.ranks = 6;
  options.nodes = 2;
  LocalWorld world(options);
  run_ranks_or_throw(world, [](Communicator& c) { exchange_blocks(c, 2); });
  for (std::int32_t r = 0; r < 6; ++r) {
    for (const auto& counters : {world.sent(r).read(), world.received(r).read()}) {
      EXPECT_EQ(counters.bytes_of(Stage::gather, Link::inside), 2 * 2 * 800);
      EXPECT_EQ(counters.bytes_of(Stage::gather, Link::between), 2 * 3 * 800);
      EXPECT_EQ(counters.bytes_of(Stage::reduce, Link::between), 0);
    }
  }
}

TEST(LocalRanks, reordered_and_late_messages_change_nothing) {
  LocalOptions options;
  options.ranks = 4;
  options.faults = [](const MessageInfo& m) {
    const auto hash = (m.from * 7 + m.to * 3 + m.value) % 5;
    if (hash == 0) return Fault{Fault::Kind::late, std::chrono::milliseconds(1)};
    return hash < 3 ? Fault{Fault::Kind::held} : Fault{};
  };
  LocalWorld world(options);
  run_ranks_or_throw(world, [](Communicator& c) { exchange_blocks(c, 20); });
}

TEST(LocalRanks, a_dropped_message_ends_every_rank_with_an_error_that_names_it) {
  LocalOptions options;
  options.ranks = 3;
  options.deadline = std::chrono::milliseconds(500);
  options.faults = [](const MessageInfo& m) {
    return m.from == 1 && m.to == 2 && m.tag.stage == Stage::gather && m.value == 3 ? Fault{Fault::Kind::dropped}
                                                                                    : Fault{};
  };
  LocalWorld world(options);
  const auto errors = run_ranks(world, [](Communicator& c) { exchange_blocks(c, 10); });
  for (const auto& error : errors) {
    const std::string text = text_of(error);
    EXPECT_NE(text.find("rank 2 waits in stage gather for chunk 1 of batch row 0 from rank 1"), std::string::npos)
        << text;
    EXPECT_NE(text.find("expected 3, seen 2"), std::string::npos) << text;
  }
}

TEST(LocalRanks, a_rank_that_throws_ends_the_others) {
  LocalOptions options;
  options.ranks = 4;
  LocalWorld world(options);
  const auto errors = run_ranks(world, [](Communicator& c) {
    if (c.rank() == 3) throw Error(ErrorCode::io, "planted");
    exchange_blocks(c, 1);
  });
  for (const auto& error : errors) EXPECT_NE(text_of(error).find("planted"), std::string::npos) << text_of(error);
}

TEST(LocalRanks, a_rank_that_skips_a_set_up_call_is_named) {
  LocalOptions options;
  options.ranks = 3;
  options.setup_deadline = std::chrono::milliseconds(50);
  LocalWorld world(options);
  const auto errors = run_ranks(world, [](Communicator& c) {
    if (c.rank() != 1) (void)c.allocate_words(4);
  });
  EXPECT_NE(text_of(errors[0]).find("rank(s) 1"), std::string::npos) << text_of(errors[0]);
}

TEST(LocalRanks, puts_outside_the_peers_buffer_are_refused_before_they_are_queued) {
  LocalOptions options;
  options.ranks = 2;
  LocalWorld world(options);
  run_ranks_or_throw(world, [](Communicator& c) {
    const auto buffer = c.allocate_buffer(c.rank() == 0 ? 16 : 8);
    const auto words = c.allocate_words(1);
    const auto stream = c.make_stream("test");
    const std::byte data[16] = {};
    const Put put{1 - c.rank(), buffer, 0, data, 12, {words, 0}, 1, {}};
    if (c.rank() == 0) {
      EXPECT_THROW(c.put(*stream, put), Error);
      Put far = put;
      far.offset = ~std::size_t{0} - 3;
      EXPECT_THROW(c.put(*stream, far), Error);
    } else {
      c.put(*stream, put);
    }
    c.synchronise(*stream);
  });
}

TEST(LocalRanks, sums_run_in_stream_order) {
  LocalWorld world({});
  run_ranks_or_throw(world, [](Communicator& c) {
    const auto stream = c.make_stream("test");
    const std::vector<float> one(7, 1.0F), big(7, 1e8F);
    std::vector<float> into(7, 0.0F);
    c.add(*stream, into.data(), big.data(), 7);
    c.add(*stream, into.data(), one.data(), 7);  // lost in the rounding of 1e8, which shows the order
    const std::vector<float> minus(7, -1e8F);
    c.add(*stream, into.data(), minus.data(), 7);
    c.synchronise(*stream);
    EXPECT_EQ(into, std::vector<float>(7, 0.0F));
  });
}

TEST(LocalRanks, all_gather_returns_rank_order) {
  LocalOptions options;
  options.ranks = 5;
  LocalWorld world(options);
  run_ranks_or_throw(world, [](Communicator& c) {
    for (int round = 0; round < 20; ++round) {
      const std::int32_t mine = c.rank() * 10 + round;
      std::vector<std::int32_t> all(5);
      c.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
      for (int r = 0; r < 5; ++r) ASSERT_EQ(all[static_cast<std::size_t>(r)], r * 10 + round);
    }
  });
}

}  // namespace
}  // namespace flashmask::comm
