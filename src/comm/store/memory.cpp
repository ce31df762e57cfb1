#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>

#include "comm/store/store.hpp"
#include "core/check.hpp"

namespace flashmask::comm {
namespace {

class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::span<const std::byte> value) override {
    check_key(key);
    check_value(key, value.size());
    {
      const std::lock_guard lock(mutex_);
      core::check(stored_ + key.size() + value.size() <= kMaxStored,
                  "the store is full: {} bytes are the most it holds", kMaxStored);
      const auto [at, fresh] = map_.try_emplace(std::string(key), value.begin(), value.end());
      core::check(fresh || std::ranges::equal(at->second, value),
                  "key {} is already set to another value: two ranks with the same number?", key);
      if (fresh) stored_ += key.size() + value.size();
    }
    changed_.notify_all();
  }

  Bytes get(std::string_view key, std::chrono::milliseconds deadline) override {
    check_key(key);
    std::unique_lock lock(mutex_);
    const std::string name(key);
    const bool came = changed_.wait_for(lock, deadline, [&] { return map_.contains(name); });
    if (!came)
      core::fail(ErrorCode::timeout, "nobody set key {} within {} ms: is every rank running?", key, deadline.count());
    return map_.at(name);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes> map_;
  std::size_t stored_ = 0;
};

}  // namespace

void check_key(std::string_view key) {
  core::check(!key.empty() && key.size() <= kMaxKey, "a key has 1 to {} bytes, got {}", kMaxKey, key.size());
  const bool legal = std::ranges::all_of(key, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-' || c == '/';
  });
  core::check(legal, "a key has letters, digits and ._-/ only");
}

void check_value(std::string_view key, std::size_t bytes) {
  core::check(bytes <= kMaxValue, "the value of key {} has {} bytes: allowed are {}", key, bytes, kMaxValue);
}

std::shared_ptr<Store> make_memory_store() {
  return std::make_shared<MemoryStore>();
}

std::vector<Bytes> all_gather(Store& store, std::string_view name, std::int32_t rank, std::int32_t ranks,
                              std::span<const std::byte> mine, std::chrono::milliseconds deadline) {
  core::check(rank >= 0 && rank < ranks, "rank = {}: allowed are 0 to {}", rank, ranks - 1);
  store.set(core::format("{}/{}", name, rank), mine);
  std::vector<Bytes> all;
  for (std::int32_t r = 0; r < ranks; ++r) all.push_back(store.get(core::format("{}/{}", name, r), deadline));
  return all;
}

}  // namespace flashmask::comm
