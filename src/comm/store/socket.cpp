#include "comm/store/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "core/check.hpp"

namespace flashmask::comm {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int rc = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (rc != 0) core::fail(ErrorCode::io, "cannot resolve host {}: {}", host, ::gai_strerror(rc));
  return {list, &::freeaddrinfo};
}

int milliseconds_left(Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

Socket try_connect(const addrinfo& address, Deadline deadline) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return {};
  if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS || !wait_for(socket, POLLOUT, deadline)) return {};
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) return {};
  }
  return socket;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Socket listen_on(const std::string& host, std::uint16_t port) {
  const auto addresses = resolve(host, port, AI_PASSIVE);
  int why = 0;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (socket.open()) ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket.open() && ::bind(socket.fd(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(socket.fd(), 128) == 0) {
      return socket;
    }
    why = errno;
  }
  core::fail(ErrorCode::io, "cannot listen on {}:{}: {}; is the host this machine's and the port free?", host, port,
             std::strerror(why));
}

std::uint16_t bound_port(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    core::fail(ErrorCode::io, "getsockname: {}", std::strerror(errno));
  }
  const auto port = address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                                  : reinterpret_cast<sockaddr_in*>(&address)->sin_port;
  return ntohs(port);
}

Socket connect_to(const std::string& host, std::uint16_t port, Deadline deadline) {
  const auto addresses = resolve(host, port, 0);
  do {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      Socket socket = try_connect(*a, deadline);
      if (socket.open()) return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(20, milliseconds_left(deadline))));
  } while (milliseconds_left(deadline) > 0);
  core::fail(ErrorCode::timeout, "cannot connect to the store at {}:{}: is rank 0 running there?", host, port);
}

bool wait_for(const Socket& socket, short events, Deadline deadline) {
  while (true) {
    pollfd p{socket.fd(), events, 0};
    const int rc = ::poll(&p, 1, milliseconds_left(deadline));
    if (rc > 0) return true;
    if (rc == 0 && milliseconds_left(deadline) == 0) return false;
    if (rc < 0 && errno != EINTR) core::fail(ErrorCode::io, "poll: {}", std::strerror(errno));
  }
}

void send_all(const Socket& socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!wait_for(socket, POLLOUT, deadline))
        core::fail(ErrorCode::timeout, "the store took no data before the deadline");
    } else {
      core::fail(ErrorCode::io, "the store closed the connection: wrong token, or rank 0 has ended");
    }
  }
}

std::string receive_exactly(const Socket& socket, std::size_t bytes, Deadline deadline) {
  std::string out(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t n = ::recv(socket.fd(), out.data() + have, bytes - have, 0);
    if (n > 0) {
      have += static_cast<std::size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!wait_for(socket, POLLIN, deadline))
        core::fail(ErrorCode::timeout, "the store did not answer before the deadline");
    } else {
      core::fail(ErrorCode::io, "the store closed the connection: wrong token, or rank 0 has ended");
    }
  }
  return out;
}

}  // namespace flashmask::comm
