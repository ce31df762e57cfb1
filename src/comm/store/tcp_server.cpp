#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <list>
#include <optional>
#include <thread>

#include "comm/store/socket.hpp"
#include "comm/store/wire.hpp"
#include "core/check.hpp"

namespace flashmask::comm {
namespace {

constexpr std::size_t kStrangerSeats = 64;  ///< connections that have not shown the token yet
constexpr std::size_t kMemberSeats = 8192;
using Clock = std::chrono::steady_clock;

/// Takes the same time wherever the first difference is.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return difference == 0;
}

struct Connection {
  Socket socket;
  std::string in, out;
  bool member = false;
  bool broken = false;
  Deadline hello_end{};
  std::optional<std::string> waits_for;  ///< a get that nobody has answered yet
  Deadline wait_end{};
  std::int64_t wait_ms = 0;
};

class Server final : public TcpServer {
 public:
  explicit Server(TcpOptions options)
      : options_(std::move(options)),
        listener_(listen_on(options_.host, options_.port)),
        wake_(::eventfd(0, EFD_CLOEXEC)) {
    if (!wake_.open()) core::fail(ErrorCode::io, "eventfd failed");
    port_ = bound_port(listener_);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~Server() override {
    thread_.request_stop();
    const std::uint64_t one = 1;
    (void)!::write(wake_.fd(), &one, sizeof one);
  }
  [[nodiscard]] std::uint16_t port() const override { return port_; }
  [[nodiscard]] std::int64_t refused() const override { return refused_.load(); }

 private:
  void run(const std::stop_token& stop) {
    std::vector<pollfd> polls;
    while (!stop.stop_requested()) {
      polls.assign({{wake_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}});
      for (const auto& c : connections_) {
        polls.push_back({c.socket.fd(), static_cast<short>(c.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      }
      if (::poll(polls.data(), polls.size(), 50) < 0 && errno != EINTR) return;
      std::size_t i = 2;
      for (auto& c : connections_) serve(c, polls[i++].revents);
      expire();
      std::erase_if(connections_, [this](const Connection& c) {
        if (c.broken && !c.member) refused_.fetch_add(1);
        return c.broken;
      });
      if (polls[1].revents & POLLIN) accept_one();
    }
  }

  void accept_one() {
    Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.open()) return;
    const auto strangers = static_cast<std::size_t>(std::ranges::count(connections_, false, &Connection::member));
    if (connections_.size() - strangers >= kMemberSeats) return;
    if (strangers >= kStrangerSeats) {  // the one who has waited longest makes room
      connections_.erase(std::ranges::find(connections_, false, &Connection::member));
      refused_.fetch_add(1);
    }
    Connection& c = connections_.emplace_back();
    c.socket = std::move(socket);
    c.hello_end = Clock::now() + options_.hello_deadline;
  }

  void process(Connection& c) {
    while (!c.broken && (c.member ? take_request(c) : take_hello(c))) {
    }
  }

  void serve(Connection& c, short events) {
    if (events & POLLOUT) {
      flush(c);
      process(c);
    }
    if (!(events & (POLLIN | POLLHUP | POLLERR))) return;
    char bytes[4096];
    const ssize_t n = ::recv(c.socket.fd(), bytes, sizeof bytes, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) c.broken = true;
    if (n <= 0) return;
    c.in.append(bytes, static_cast<std::size_t>(n));
    process(c);
    // A member asks one thing at a time; more than one request's worth of unread bytes is nobody we know.
    if (c.in.size() > wire::kRequestHeader + kMaxKey + kMaxValue + sizeof bytes) c.broken = true;
    flush(c);
  }

  bool take_hello(Connection& c) {
    const std::string_view in = c.in;
    if (in.substr(0, wire::kMagic.size()) != wire::kMagic.substr(0, in.size())) return refuse(c);
    if (in.size() < wire::kHelloHeader) return false;
    const std::size_t token = wire::parse<std::uint16_t>(in.substr(8));
    if (wire::parse<std::uint32_t>(in.substr(4)) != wire::kVersion || token > kMaxToken) return refuse(c);
    if (in.size() < wire::kHelloHeader + token) return false;
    if (!same_secret(in.substr(wire::kHelloHeader, token), options_.token)) return refuse(c);
    c.in.erase(0, wire::kHelloHeader + token);
    c.member = true;
    c.out += static_cast<char>(wire::Status::ok);
    return true;
  }

  static bool refuse(Connection& c) {
    const char status = static_cast<char>(wire::Status::refused);
    (void)!::send(c.socket.fd(), &status, 1, MSG_NOSIGNAL);
    c.broken = true;
    return false;
  }

  bool take_request(Connection& c) {
    if (c.waits_for || c.out.size() > kMaxValue) return false;  // first the answer that is due
    const std::string_view in = c.in;
    if (in.size() < wire::kRequestHeader) return false;
    const auto operation = static_cast<wire::Operation>(in[0]);
    const std::size_t key_size = wire::parse<std::uint16_t>(in.substr(1));
    const std::size_t number = wire::parse<std::uint32_t>(in.substr(3));
    const bool setting = operation == wire::Operation::set;
    if ((!setting && operation != wire::Operation::get) || key_size > kMaxKey || (setting && number > kMaxValue)) {
      c.broken = true;
      return false;
    }
    const std::size_t value_size = setting ? number : 0;
    if (in.size() < wire::kRequestHeader + key_size + value_size) return false;
    const std::string key(in.substr(wire::kRequestHeader, key_size));
    const std::string value(in.substr(wire::kRequestHeader + key_size, value_size));
    c.in.erase(0, wire::kRequestHeader + key_size + value_size);
    if (setting) {
      set(c, key, value);
    } else {
      c.waits_for = key;
      c.wait_ms = static_cast<std::int64_t>(number);
      c.wait_end = Clock::now() + std::chrono::milliseconds(number);
      answer(c);
    }
    return true;
  }

  void set(Connection& c, const std::string& key, const std::string& value) {
    try {
      map_->set(key, std::as_bytes(std::span(value)));
      c.out += wire::reply(wire::Status::ok, {});
    } catch (const std::exception& e) {
      c.out += wire::reply(wire::Status::refused, e.what());
      return;
    }
    for (auto& other : connections_) {
      if (other.waits_for == key) {
        answer(other);
        flush(other);
      }
    }
  }

  /// Answers a waiting get if its key is there.
  void answer(Connection& c) {
    try {
      const Bytes value = map_->get(*c.waits_for, std::chrono::milliseconds(0));
      c.out += wire::reply(wire::Status::ok, {reinterpret_cast<const char*>(value.data()), value.size()});
    } catch (const Error& e) {
      if (e.code() == ErrorCode::timeout) return;  // not there yet
      c.out += wire::reply(wire::Status::refused, e.what());
    }
    c.waits_for.reset();
  }

  void expire() {
    const auto now = Clock::now();
    for (auto& c : connections_) {
      if (!c.member && now >= c.hello_end) c.broken = true;
      if (c.waits_for && now >= c.wait_end) {
        c.out +=
            wire::reply(wire::Status::timeout,
                        core::format("nobody set key {} within {} ms: is every rank running?", *c.waits_for, c.wait_ms));
        c.waits_for.reset();
        flush(c);
      }
    }
  }

  static void flush(Connection& c) {
    while (!c.out.empty() && !c.broken) {
      const ssize_t n = ::send(c.socket.fd(), c.out.data(), c.out.size(), MSG_NOSIGNAL);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n < 0) c.broken = true;
      if (n > 0) c.out.erase(0, static_cast<std::size_t>(n));
    }
  }

  TcpOptions options_;
  Socket listener_;
  Socket wake_;
  std::uint16_t port_ = 0;
  std::shared_ptr<Store> map_ = make_memory_store();
  std::list<Connection> connections_;  // a list: set() answers others while one is served
  std::atomic<std::int64_t> refused_{0};
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<TcpServer> serve(const TcpOptions& options) {
  core::check(!options.token.empty() && options.token.size() <= kMaxToken,
              "the token has {} bytes: allowed are 1 to {}; set FLASHMASK_STORE_TOKEN to the same secret on every rank",
              options.token.size(), kMaxToken);
  return std::make_unique<Server>(options);
}

}  // namespace flashmask::comm
