#include <mutex>

#include "comm/store/socket.hpp"
#include "comm/store/wire.hpp"
#include "core/check.hpp"

namespace flashmask::comm {
namespace {

class TcpStore final : public Store {
 public:
  explicit TcpStore(TcpOptions options) : options_(std::move(options)) {
    core::check(
        !options_.token.empty() && options_.token.size() <= kMaxToken,
        "the token has {} bytes: allowed are 1 to {}; set FLASHMASK_STORE_TOKEN to the same secret on every rank",
        options_.token.size(), kMaxToken);
    const auto end = std::chrono::steady_clock::now() + options_.deadline;
    socket_ = connect_to(options_.host, options_.port, end);
    send_all(socket_, wire::hello(options_.token), end);
    if (static_cast<wire::Status>(receive_exactly(socket_, 1, end)[0]) != wire::Status::ok) {
      core::fail(ErrorCode::io, "the store at {}:{} refused this token or version", options_.host, options_.port);
    }
  }

  void set(std::string_view key, std::span<const std::byte> value) override {
    check_key(key);
    check_value(key, value.size());
    (void)ask(wire::request(wire::Operation::set, key, static_cast<std::uint32_t>(value.size()),
                            {reinterpret_cast<const char*>(value.data()), value.size()}),
              options_.deadline);
  }

  Bytes get(std::string_view key, std::chrono::milliseconds deadline) override {
    check_key(key);
    core::check(deadline.count() >= 0 && deadline.count() <= 86'400'000, "deadline = {} ms: allowed are 0 to a day",
                deadline.count());
    const std::string value =
        ask(wire::request(wire::Operation::get, key, static_cast<std::uint32_t>(deadline.count()), {}),
            deadline + options_.deadline);
    const auto* bytes = reinterpret_cast<const std::byte*>(value.data());
    return {bytes, bytes + value.size()};
  }

 private:
  std::string ask(const std::string& request, std::chrono::milliseconds deadline) {
    const std::lock_guard lock(mutex_);  // one request at a time on the connection
    const auto end = std::chrono::steady_clock::now() + deadline;
    send_all(socket_, request, end);
    const std::string header = receive_exactly(socket_, wire::kReplyHeader, end);
    const auto status = static_cast<wire::Status>(header[0]);
    const auto size = wire::parse<std::uint32_t>(std::string_view(header).substr(1));
    if (size > kMaxValue)
      core::fail(ErrorCode::io, "the store answered with {} bytes: allowed are {}", size, kMaxValue);
    std::string value = receive_exactly(socket_, size, end);
    if (status == wire::Status::timeout) core::fail(ErrorCode::timeout, "{}", value);
    if (status != wire::Status::ok) core::fail(ErrorCode::invalid_argument, "{}", value);
    return value;
  }

  TcpOptions options_;
  std::mutex mutex_;
  Socket socket_;
};

}  // namespace

std::unique_ptr<Store> make_tcp_store(const TcpOptions& options) {
  return std::make_unique<TcpStore>(options);
}

}  // namespace flashmask::comm
