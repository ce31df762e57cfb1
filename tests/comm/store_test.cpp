// Bootstrap stores: one meaning behind three transports, and a TCP server that strangers can neither join nor harm.
#include "comm/store/store.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "comm/store/socket.hpp"
#include "comm/store/wire.hpp"
#include "flashmask/error.hpp"

namespace flashmask::comm {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{10'000};

Bytes bytes_of(std::string_view text) {
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  return {p, p + text.size()};
}

struct TemporaryDirectory {
  std::filesystem::path path;
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "flashmask-store-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
};

TcpOptions loopback(std::uint16_t port = 0) {
  TcpOptions options;
  options.host = "127.0.0.1";
  options.port = port;
  options.token = "a shared secret";
  options.deadline = kLong;
  options.hello_deadline = milliseconds(200);
  return options;
}

/// Runs `ranks` threads, each with a store from `make`, through two all_gathers.
void bootstrap_ranks(int ranks, const std::function<std::shared_ptr<Store>()>& make) {
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto store = make();
      for (const char* name : {"ids", "digests"}) {
        const auto all = all_gather(*store, name, r, ranks, bytes_of(std::string(name) + std::to_string(r)), kLong);
        ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks));
        for (int other = 0; other < ranks; ++other)
          EXPECT_EQ(all[other], bytes_of(std::string(name) + std::to_string(other)));
      }
    });
  }
}

TEST(Store, ranks_meet_in_memory_files_and_tcp) {
  const auto memory = make_memory_store();
  bootstrap_ranks(6, [&] { return memory; });
  const TemporaryDirectory directory;
  bootstrap_ranks(6, [&] { return std::shared_ptr<Store>(make_file_store(directory.path, "job 1/a")); });
  const auto server = serve(loopback());
  bootstrap_ranks(6, [&] { return std::shared_ptr<Store>(make_tcp_store(loopback(server->port()))); });
}

void check_meaning(Store& store) {
  store.set("a", bytes_of("one"));
  store.set("a", bytes_of("one"));  // the same again is no contradiction
  EXPECT_EQ(store.get("a", kLong), bytes_of("one"));
  EXPECT_THROW(store.set("a", bytes_of("two")), Error);
  EXPECT_EQ(store.get("a", kLong), bytes_of("one"));
  store.set("empty", {});
  EXPECT_EQ(store.get("empty", kLong), Bytes());
  store.set("large", Bytes(kMaxValue, std::byte{7}));
  EXPECT_EQ(store.get("large", kLong), Bytes(kMaxValue, std::byte{7}));
  EXPECT_THROW(store.set("too/large", Bytes(kMaxValue + 1)), Error);
  EXPECT_THROW(store.set("", {}), Error);
  EXPECT_THROW(store.set("a b", {}), Error);
  EXPECT_THROW(store.set(std::string(kMaxKey + 1, 'k'), {}), Error);
  try {
    (void)store.get("nobody/sets/this", milliseconds(60));
    FAIL() << "a get of an absent key returned";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::timeout);
    EXPECT_NE(std::string(e.what()).find("nobody"), std::string::npos) << e.what();
  }
}

TEST(Store, every_kind_means_the_same) {
  check_meaning(*make_memory_store());
  const TemporaryDirectory directory;
  check_meaning(*make_file_store(directory.path, "t"));
  const auto server = serve(loopback());
  check_meaning(*make_tcp_store(loopback(server->port())));
}

TEST(Store, files_of_another_job_are_not_read) {
  const TemporaryDirectory directory;
  make_file_store(directory.path, "one")->set("k", bytes_of("old"));
  const auto store = make_file_store(directory.path, "two");
  EXPECT_THROW((void)store->get("k", milliseconds(20)), Error);
  EXPECT_THROW((void)make_file_store(directory.path / "absent", "t"), Error);
}

TEST(Store, a_stranger_neither_joins_nor_harms) {
  const auto server = serve(loopback());
  const auto soon = [] { return std::chrono::steady_clock::now() + milliseconds(2000); };
  const auto member = make_tcp_store(loopback(server->port()));
  member->set("secret", bytes_of("value"));

  TcpOptions wrong = loopback(server->port());
  wrong.token = "a shared secreT";
  EXPECT_THROW((void)make_tcp_store(wrong), Error);
  wrong.token = "a shared";
  EXPECT_THROW((void)make_tcp_store(wrong), Error);

  std::string huge_token(wire::kMagic);
  wire::append(huge_token, wire::kVersion);
  wire::append(huge_token, std::uint16_t{65535});
  std::string other_version(wire::kMagic);
  wire::append(other_version, std::uint32_t{99});
  wire::append(other_version, std::uint16_t{0});
  for (const std::string& garbage : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xff'), huge_token,
                                     other_version, wire::request(wire::Operation::get, "secret", 1000, {})}) {
    const Socket socket = connect_to("127.0.0.1", server->port(), soon());
    try {  // the server may hang up while we still talk
      send_all(socket, garbage, soon());
      const std::string answer = receive_exactly(socket, 1, soon());
      EXPECT_NE(answer[0], static_cast<char>(wire::Status::ok));
      EXPECT_THROW((void)receive_exactly(socket, 1, soon()), Error) << "the connection stayed open";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io) << e.what();
    }
  }
  EXPECT_GE(server->refused(), 5);
  EXPECT_EQ(member->get("secret", kLong), bytes_of("value"));
}

TEST(Store, silent_and_half_spoken_strangers_lose_their_seat_and_keep_nobody_out) {
  const auto server = serve(loopback());
  const auto later = [] { return std::chrono::steady_clock::now() + kLong; };
  std::vector<Socket> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(connect_to("127.0.0.1", server->port(), later()));
    if (i % 2 == 0) send_all(strangers.back(), "FMS", later());
  }
  bootstrap_ranks(3, [&] { return std::shared_ptr<Store>(make_tcp_store(loopback(server->port()))); });
  const auto end = later();
  while (server->refused() < 100 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(server->refused(), 100);
}

TEST(Store, oversized_requests_of_a_member_end_its_connection_only) {
  const auto server = serve(loopback());
  const auto member = make_tcp_store(loopback(server->port()));
  const auto soon = std::chrono::steady_clock::now() + kLong;
  for (const auto& [key_size, value_size] : {std::pair<int, unsigned>{65535, 1}, {1, 0xffffffffU}}) {
    const Socket socket = connect_to("127.0.0.1", server->port(), soon);
    send_all(socket, wire::hello("a shared secret"), soon);
    EXPECT_EQ(receive_exactly(socket, 1, soon)[0], static_cast<char>(wire::Status::ok));
    std::string header;
    wire::append(header, static_cast<std::uint8_t>(wire::Operation::set));
    wire::append(header, static_cast<std::uint16_t>(key_size));
    wire::append(header, static_cast<std::uint32_t>(value_size));
    send_all(socket, header, soon);
    EXPECT_THROW((void)receive_exactly(socket, 1, soon), Error);
  }
  member->set("still", bytes_of("here"));
  EXPECT_EQ(member->get("still", kLong), bytes_of("here"));
}

struct Variables {
  explicit Variables(std::vector<std::pair<std::string, std::string>> values) : values_(std::move(values)) {
    for (const auto& [name, value] : values_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : values_) ::unsetenv(name.c_str());
  }
  std::vector<std::pair<std::string, std::string>> values_;
};

TEST(Launch, torchrun_variables_are_read_and_contradictions_named) {
  EXPECT_THROW((void)launch_from_environment(), Error);
  const Variables all({{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"MASTER_ADDR", "127.0.0.1"},
                       {"MASTER_PORT", "29500"},
                       {"FLASHMASK_STORE_TOKEN", "t"}});
  const Launch launch = launch_from_environment();
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.ranks, 8);
  EXPECT_EQ(launch.nodes, 2);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.port, 29501);
  for (const auto& [name, value] :
       {std::pair<const char*, const char*>{"LOCAL_RANK", "2"}, {"RANK", "8"}, {"LOCAL_WORLD_SIZE", "3"}}) {
    const std::string before = std::getenv(name);
    ::setenv(name, value, 1);
    try {
      (void)launch_from_environment();
      ADD_FAILURE() << name << "=" << value << " was accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
    }
    ::setenv(name, before.c_str(), 1);
  }
}

TEST(Launch, ranks_bootstrap_over_tcp_from_their_launch_records) {
  std::uint16_t port = 0;
  { port = serve(loopback())->port(); }  // a port that was free a moment ago
  std::vector<std::jthread> threads;
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([r, port] {
      const Launch launch{r, 4, r, 1, "127.0.0.1", port, "t"};
      const Bootstrap b = bootstrap(launch, kLong);
      const auto all = all_gather(*b.store, "hello", r, 4, bytes_of(std::to_string(r)), kLong);
      for (int other = 0; other < 4; ++other) EXPECT_EQ(all[other], bytes_of(std::to_string(other)));
      (void)all_gather(*b.store, "goodbye", r, 4, {}, kLong);  // rank 0 serves until everybody has finished
      if (r == 0) std::this_thread::sleep_for(milliseconds(100));
    });
  }
}

}  // namespace
}  // namespace flashmask::comm
