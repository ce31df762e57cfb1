// A socket that closes itself, and blocking calls that end at a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace flashmask::comm {

using Deadline = std::chrono::steady_clock::time_point;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Non-blocking listener on the first address of `host` that can be bound; io Error otherwise.
Socket listen_on(const std::string& host, std::uint16_t port);
/// The port a socket is bound to.
std::uint16_t bound_port(const Socket& socket);
/// Connects, trying again until the deadline; timeout Error naming host and port.
Socket connect_to(const std::string& host, std::uint16_t port, Deadline deadline);
/// Send and receive exactly so many bytes; io Error when the other side closes, timeout Error past the deadline.
void send_all(const Socket& socket, std::string_view bytes, Deadline deadline);
std::string receive_exactly(const Socket& socket, std::size_t bytes, Deadline deadline);
/// Waits until the socket has one of the poll() events; false past the deadline.
bool wait_for(const Socket& socket, short events, Deadline deadline);

}  // namespace flashmask::comm
