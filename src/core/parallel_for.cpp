#include "core/parallel_for.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/environment.hpp"

namespace flashmask::core {

int thread_count(int requested) {
  if (requested > 0) return requested;
  if (const auto from_environment = environment_integer("FLASHMASK_THREADS", 1, 4096)) {
    return static_cast<int>(*from_environment);
  }
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t, int)>& body) {
  const int workers = static_cast<int>(std::min<std::int64_t>(threads, count));
  if (workers <= 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
  std::exception_ptr first_failure;
  std::mutex failure_mutex;
  const auto work = [&](int worker) {
    try {
      for (std::int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(i, worker);
    } catch (...) {
      next.store(count);
      const std::lock_guard lock(failure_mutex);
      if (!first_failure) first_failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> pool;
    pool.reserve(static_cast<std::size_t>(workers - 1));
    for (int w = 1; w < workers; ++w) pool.emplace_back(work, w);
    work(0);
  }
  if (first_failure) std::rethrow_exception(first_failure);
}

}  // namespace flashmask::core
