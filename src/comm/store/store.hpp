// Bootstrap: how ranks that know nothing of each other yet exchange a few small values (unique ids, digests, handles).
//
// A Store is a set-once map from short keys to small values that every rank can reach: memory of one process, a shared
// directory, or a TCP server on rank 0. It carries no tensors.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flashmask::comm {

using Bytes = std::vector<std::byte>;

inline constexpr std::size_t kMaxKey = 200;                       ///< bytes; letters, digits and ._-/ only
inline constexpr std::size_t kMaxValue = std::size_t{1} << 20;    ///< bytes of one value
inline constexpr std::size_t kMaxStored = std::size_t{64} << 20;  ///< bytes of all keys and values of one store
inline constexpr std::size_t kMaxToken = 200;

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// Throws invalid_argument for a key or value out of bounds, and for a key that already holds another value: two
  /// ranks with one number, or what an earlier job left behind.
  virtual void set(std::string_view key, std::span<const std::byte> value) = 0;
  /// Blocks until somebody has set the key; timeout Error naming the key past the deadline.
  virtual Bytes get(std::string_view key, std::chrono::milliseconds deadline) = 0;
};

/// Throw invalid_argument for a key or a value that no store takes.
void check_key(std::string_view key);
void check_value(std::string_view key, std::size_t bytes);

/// For the ranks of one process; share the object.
std::shared_ptr<Store> make_memory_store();

/// Over a directory that all ranks see. `token` names the job, so that a directory can be used again.
std::unique_ptr<Store> make_file_store(const std::filesystem::path& directory, std::string_view token);

struct TcpOptions {
  std::string host;        ///< where rank 0 listens
  std::uint16_t port = 0;  ///< 0 lets the server choose (see TcpServer::port)
  std::string token;       ///< shared secret of the job, 1 to 200 bytes; who does not know it is turned away
  std::chrono::milliseconds deadline{60'000};       ///< of connecting and of every request
  std::chrono::milliseconds hello_deadline{5'000};  ///< server side: of showing the token
};

/// Accepts connections on a thread of its own. Nothing a stranger sends can join, crash or block it: requests are
/// bounded, strangers have a deadline and a limited number of seats, and only the token opens the map.
class TcpServer {
 public:
  virtual ~TcpServer() = default;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  /// Connections turned away so far: wrong token, malformed, too large, or too slow.
  [[nodiscard]] virtual std::int64_t refused() const = 0;
};
std::unique_ptr<TcpServer> serve(const TcpOptions& options);
std::unique_ptr<Store> make_tcp_store(const TcpOptions& options);

/// Who a process is, from torchrun's variables RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
/// MASTER_PORT.
struct Launch {
  std::int32_t rank = 0;
  std::int32_t ranks = 1;
  std::int32_t local_rank = 0;
  std::int32_t nodes = 1;
  std::string host;
  std::uint16_t port = 0;  ///< FLASHMASK_STORE_PORT, else MASTER_PORT + 1: MASTER_PORT itself is the launcher's
  std::string token;       ///< FLASHMASK_STORE_TOKEN
};
/// Throws invalid_argument naming the variable that is missing or contradicts another.
Launch launch_from_environment();

/// A store with, on rank 0, the server behind it.
struct Bootstrap {
  std::unique_ptr<TcpServer> server;
  std::unique_ptr<Store> store;
};
Bootstrap bootstrap(const Launch& launch, std::chrono::milliseconds deadline);

/// Every rank's value in rank order. `name` must be new for every call.
std::vector<Bytes> all_gather(Store& store, std::string_view name, std::int32_t rank, std::int32_t ranks,
                              std::span<const std::byte> mine, std::chrono::milliseconds deadline);

}  // namespace flashmask::comm
