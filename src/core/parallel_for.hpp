// Threads over an index range, handed out one by one in ascending order (so sort the heaviest first).
#pragma once

#include <cstdint>
#include <functional>

namespace flashmask::core {

/// `requested` if positive, else FLASHMASK_THREADS if set, else one per hardware thread.
int thread_count(int requested);

/// Calls body(index, worker) for every index in [0, count); worker in [0, threads). Rethrows the first exception after
/// every worker has stopped. threads <= 1 runs inline.
void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t index, int worker)>& body);

}  // namespace flashmask::core
