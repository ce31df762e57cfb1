#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "comm/store/store.hpp"
#include "core/check.hpp"

namespace flashmask::comm {
namespace {

namespace fs = std::filesystem;

/// One file per key. A value is written beside and then linked into place, so a reader sees all of it or nothing, and
/// of two writers exactly one succeeds.
class FileStore final : public Store {
 public:
  FileStore(const fs::path& directory, std::string_view token)
      : prefix_(directory / ("flashmask-" + encode(token) + "-")) {
    core::check(!token.empty() && token.size() <= kMaxKey / 4, "a file store's token has 1 to {} bytes, got {}",
                kMaxKey / 4, token.size());
    if (!fs::is_directory(directory)) {
      core::fail(ErrorCode::io, "{} is not a directory: create it where every rank can see it", directory.string());
    }
  }

  void set(std::string_view key, std::span<const std::byte> value) override {
    check_key(key);
    check_value(key, value.size());
    static std::atomic<std::int64_t> serial{0};
    const fs::path target = path(key);
    const fs::path beside = target.string() + core::format(".{}.{}.new", ::getpid(), serial.fetch_add(1));
    {
      std::ofstream out(beside, std::ios::binary);
      out.write(reinterpret_cast<const char*>(value.data()), static_cast<std::streamsize>(value.size()));
      out.close();
      if (!out) core::fail(ErrorCode::io, "cannot write {}", beside.string());
    }
    const int linked = ::link(beside.c_str(), target.c_str());
    const int why = errno;
    ::unlink(beside.c_str());
    if (linked == 0) return;
    if (why != EEXIST) core::fail(ErrorCode::io, "cannot create {}: {}", target.string(), std::strerror(why));
    const Bytes there = read(target, key);
    core::check(std::equal(there.begin(), there.end(), value.begin(), value.end()),
                "{} already holds another value: two ranks with the same number, or an earlier job used the same token",
                target.string());
  }

  Bytes get(std::string_view key, std::chrono::milliseconds deadline) override {
    check_key(key);
    const fs::path target = path(key);
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (!fs::exists(target)) {
      if (std::chrono::steady_clock::now() >= end) {
        core::fail(ErrorCode::timeout,
                   "{} did not appear within {} ms: is every rank running, with the same directory and token?",
                   target.string(), deadline.count());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return read(target, key);
  }

 private:
  /// Letters, digits, dot and minus stay; everything else becomes _ and two hexadecimal digits.
  static std::string encode(std::string_view text) {
    std::string out;
    for (const char c : text) {
      const bool plain =
          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
      out += plain ? std::string(1, c) : core::format("_{:02x}", static_cast<unsigned char>(c));
    }
    return out;
  }
  [[nodiscard]] fs::path path(std::string_view key) const { return prefix_.string() + encode(key); }

  static Bytes read(const fs::path& file, std::string_view key) {
    std::ifstream in(file, std::ios::binary | std::ios::ate);
    const auto size = in ? static_cast<std::int64_t>(in.tellg()) : -1;
    if (size < 0) core::fail(ErrorCode::io, "cannot read {}", file.string());
    check_value(key, static_cast<std::size_t>(size));
    Bytes value(static_cast<std::size_t>(size));
    in.seekg(0);
    in.read(reinterpret_cast<char*>(value.data()), size);
    if (!in) core::fail(ErrorCode::io, "cannot read {}", file.string());
    return value;
  }

  fs::path prefix_;
};

}  // namespace

std::unique_ptr<Store> make_file_store(const fs::path& directory, std::string_view token) {
  return std::make_unique<FileStore>(directory, token);
}

}  // namespace flashmask::comm
