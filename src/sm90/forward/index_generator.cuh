// Role index_generator (one warp of the producer warpgroup): draws row tiles and expands the runs of the tile map into
// a queue of (column block, classes, bitmap), ahead of the loader, so that no list read lies on the loader's path.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sm90/forward/parameters.hpp"
#include "sm90/forward/schedule.cuh"
#include "sm90/forward/shared_memory.hpp"
#include "sm90/ptx/shared_address.cuh"
#include "sm90/ptx/warp.cuh"
#include "sm90/sync/bounded_wait.cuh"

namespace flashmask::sm90::forward_pass {

/// The queue as its writer sees it. All lanes call every function together.
template <ForwardConfig C>
struct QueueWriter {
  std::uint32_t shared;
  std::uint32_t* error;
  RingPosition<queue_slots> slot;

  __device__ __forceinline__ void acquire() const {
    bounded_wait(shared + offsetof(SharedMemory<C>, empty_queue) + 8 * slot.stage, slot.parity ^ 1U, error,
                 WaitSite::empty_queue);
  }
  __device__ __forceinline__ void write_header(const WorkItem& item, std::int32_t blocks) const {
    if (ptx::lane_index() == 0) {
      ptx::store_shared_v4(shared + offsetof(SharedMemory<C>, queue_header) + 16 * slot.stage,
                           static_cast<std::uint32_t>(item.row_tile), static_cast<std::uint32_t>(item.unit),
                           static_cast<std::uint32_t>(blocks), static_cast<std::uint32_t>(item.list));
    }
  }
  __device__ __forceinline__ void write(std::uint32_t place, std::int32_t block, std::uint32_t classes,
                                        std::int32_t bitmap) const {
    ptx::store_shared_v4(shared + offsetof(SharedMemory<C>, queue) + 16 * (slot.stage * queue_entries + place),
                         static_cast<std::uint32_t>(block), classes, static_cast<std::uint32_t>(bitmap), 0U);
  }
  __device__ __forceinline__ void publish() {
    __syncwarp();
    if (C.every_lane_arrives || ptx::lane_index() == 0) {
      ptx::mbarrier_arrive(shared + offsetof(SharedMemory<C>, full_queue) + 8 * slot.stage);
    }
    slot.advance();
  }
};

/// Blocks in all runs of a list.
__device__ __forceinline__ std::int32_t count_blocks(const Run* runs, std::int32_t count) {
  std::int32_t blocks = 0;
  for (std::int32_t i = static_cast<std::int32_t>(ptx::lane_index()); i < count; i += 32) blocks += runs[i].count;
  return __reduce_add_sync(0xFFFFFFFFU, blocks);
}

template <ForwardConfig C>
inline constexpr std::int32_t window_passes = C.waits_for_chunks ? 3 : 1;

/// What pass `pass` visits: everything at once, or local blocks first.
template <ForwardConfig C>
__device__ __forceinline__ BlockWindow window_of(const ForwardParameters& p, std::int32_t pass) {
  if constexpr (C.waits_for_chunks) {
    return local_first_window(pass, p.progress.first_local, p.progress.end_local);
  } else {
    return {0, 0x7FFFFFFF};
  }
}

/// Queues the part of one run that lies in `window`, right to left; `filled` entries stand in the slot in hand.
template <ForwardConfig C>
__device__ __forceinline__ void queue_run(QueueWriter<C>& queue, const int4& run, const BlockWindow& window,
                                          std::int32_t& filled) {
  const auto lane = static_cast<std::int32_t>(ptx::lane_index());
  const auto classes = static_cast<std::uint32_t>(run.z);
  const std::int32_t bitmap_step = run.w < 0 || (classes & shared_bitmap_bit) != 0 ? 0 : 1;
  std::int32_t first = max(run.x, window.first), left = min(run.x + run.y, window.end) - first;
  if constexpr (C.waits_for_chunks && C.column_units() > 1) {
    const std::int32_t before = blocks_before(run.x, run.y, C.column_units(), window.first);
    first = run.x + before * C.column_units();
    left = blocks_before(run.x, run.y, C.column_units(), window.end) - before;
  }
  while (left > 0) {
    if (filled == queue_entries) {
      queue.publish();
      queue.acquire();
      filled = 0;
    }
    const std::int32_t taken = min(left, queue_entries - filled);
    if (lane < taken) {
      const std::int32_t block = first + (left - 1 - lane) * C.column_units();
      queue.write(static_cast<std::uint32_t>(filled + lane), block, classes,
                  run.w + (block - run.x) / C.column_units() * bitmap_step);
    }
    filled += taken;
    left -= taken;
  }
}

/// Queues the blocks of one row tile, `queue_entries` a slot.
template <ForwardConfig C>
__device__ __forceinline__ void queue_row_tile(const ForwardParameters& p, QueueWriter<C>& queue,
                                               const WorkItem& item) {
  const Run* runs = p.map.row_runs + __ldg(p.map.row_run_begin + item.list);
  const std::int32_t count = __ldg(p.map.row_run_count + item.list);
  const std::int32_t blocks = count_blocks(runs, count);
  queue.acquire();
  queue.write_header(item, blocks);
  std::int32_t filled = 0;
#pragma unroll 1
  for (std::int32_t pass = 0; pass < window_passes<C>; ++pass) {
    const BlockWindow window = window_of<C>(p, pass);
#pragma unroll 1
    for (std::int32_t r = count - 1; r >= 0; --r) {
      queue_run<C>(queue, __ldg(reinterpret_cast<const int4*>(runs + r)), window, filled);
    }
  }
  queue.publish();
}

template <ForwardConfig C>
__device__ __forceinline__ void index_generator(const ForwardParameters& p, std::uint32_t shared) {
  QueueWriter<C> queue{shared, &p.workspace->error, {}};
  const std::int32_t heavy = heavy_ranks(p);
  auto ticket = static_cast<std::int32_t>(blockIdx.x);
  while (ticket < p.tickets) {
    // Drawn one tile ahead: the atomic's latency passes behind this tile.
    std::int32_t next = 0;
    if (ptx::lane_index() == 0) next = static_cast<std::int32_t>(atomicAdd(&p.workspace->tickets, 1U) + gridDim.x);
    queue_row_tile<C>(p, queue, work_item(p, ticket, heavy));
    ticket = __shfl_sync(0xFFFFFFFFU, next, 0);
  }
  queue.acquire();
  queue.write_header({0, 0, 0}, -1);
  queue.publish();
  // The last CTA to get here resets the counters for the next launch: nobody will draw again.
  if (ptx::lane_index() == 0) {
    __threadfence();
    if (atomicAdd(&p.workspace->finished, 1U) == gridDim.x - 1) {
      atomicExch(&p.workspace->tickets, 0U);
      atomicExch(&p.workspace->finished, 0U);
    }
  }
}

}  // namespace flashmask::sm90::forward_pass
