// Role loader (one thread of the producer warpgroup): issues TMA for the queued blocks only, K one block ahead of V.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sm90/forward/chunk_wait.cuh"
#include "sm90/forward/parameters.hpp"
#include "sm90/forward/shared_memory.hpp"
#include "sm90/ptx/shared_address.cuh"
#include "sm90/ptx/tensor_copy.cuh"
#include "sm90/sync/bounded_wait.cuh"

namespace flashmask::sm90::forward_pass {

template <ForwardConfig C>
struct Loader {
  using Shared = SharedMemory<C>;
  const ForwardParameters& p;
  std::uint32_t shared;
  std::int32_t kv_head, batch;
  RingPosition<C.stages> k_ring, v_ring;
  RingPosition<queue_slots> slot;
  std::int32_t entry = 0;  ///< next entry of the slot

  __device__ __forceinline__ void wait(std::uint32_t barrier, std::uint32_t parity, WaitSite site) const {
    bounded_wait(shared + barrier, parity, &p.workspace->error, site);
  }

  __device__ __forceinline__ void wait_slot() const {
    wait(offsetof(Shared, full_queue) + 8 * slot.stage, slot.parity, WaitSite::full_queue);
  }
  __device__ __forceinline__ void release_slot() {
    ptx::mbarrier_arrive(shared + offsetof(Shared, empty_queue) + 8 * slot.stage);
    slot.advance();
    entry = 0;
  }

  /// One tile of `positions` rows from `position`: one copy, or one a half where head_dim is padded.
  __device__ __forceinline__ void copy_tile(const CUtensorMap* map, std::uint32_t destination, std::uint32_t half_bytes,
                                            std::uint32_t barrier, std::int32_t position, std::int32_t head) const {
    for (std::int32_t i = 0; i < p.copies; ++i) {
      ptx::tensor_load(destination + static_cast<std::uint32_t>(i) * half_bytes, map, barrier, 64 * i, position, 0,
                       head, batch);
    }
  }

  /// Takes the next entry of the queue, loads its K block and tells the consumers what it is. Returns the block.
  __device__ __forceinline__ std::int32_t load_k() {
    if (entry == queue_entries) {
      release_slot();
      wait_slot();
    }
    std::int32_t e[4];
    ptx::load_shared_v4(shared + offsetof(Shared, queue) + 16 * (slot.stage * queue_entries + entry), e);
    ++entry;
    if constexpr (C.waits_for_chunks) wait_for_chunks<C>(p, e[0]);
    wait(offsetof(Shared, empty_k) + 8 * k_ring.stage, k_ring.parity ^ 1U, WaitSite::empty_k);
    ptx::store_shared_v4(shared + offsetof(Shared, block) + 16 * k_ring.stage, static_cast<std::uint32_t>(e[1]),
                         static_cast<std::uint32_t>(e[2]), static_cast<std::uint32_t>(e[0]), 0U);
    const std::uint32_t barrier = shared + offsetof(Shared, full_k) + 8 * k_ring.stage;
    ptx::mbarrier_arrive_expect_tx(barrier, C.kv_bytes());
    copy_tile(&p.k, shared + offsetof(Shared, k) + k_ring.stage * C.kv_bytes(), C.block_n * layout::row_bytes, barrier,
              e[0] * C.unit(), kv_head);
    k_ring.advance();
    return e[0];
  }

  __device__ __forceinline__ void load_v(std::int32_t block) {
    wait(offsetof(Shared, empty_v) + 8 * v_ring.stage, v_ring.parity ^ 1U, WaitSite::empty_v);
    const std::uint32_t barrier = shared + offsetof(Shared, full_v) + 8 * v_ring.stage;
    ptx::mbarrier_arrive_expect_tx(barrier, C.kv_bytes());
    copy_tile(&p.v, shared + offsetof(Shared, v) + v_ring.stage * C.kv_bytes(), C.block_n * layout::row_bytes, barrier,
              block * C.unit(), kv_head);
    v_ring.advance();
  }

  /// Announces the tile to the consumers and, if it has blocks, loads its queries. The header has two slots by parity.
  __device__ __forceinline__ void load_q(const std::int32_t (&header)[4], std::uint32_t tile, std::int32_t head) {
    wait(offsetof(Shared, empty_q), (tile & 1U) ^ 1U, WaitSite::empty_q);
    ptx::store_shared_v4(shared + offsetof(Shared, tile) + 16 * (tile & 1U), static_cast<std::uint32_t>(header[0]),
                         static_cast<std::uint32_t>(header[1]), static_cast<std::uint32_t>(header[2]),
                         static_cast<std::uint32_t>(header[3]));
    const std::uint32_t barrier = shared + offsetof(Shared, full_q);
    if (header[2] <= 0) {
      ptx::mbarrier_arrive(barrier);
      return;
    }
    ptx::mbarrier_arrive_expect_tx(barrier, C.q_bytes());
    const std::int32_t first_row = header[0] * C.mask_rows();
    if constexpr (C.packed_heads == 1) {
      copy_tile(&p.q, shared + offsetof(Shared, q), C.block_m() * layout::row_bytes, barrier, first_row, head);
    } else {
      for (std::int32_t i = 0; i < p.copies; ++i) {
        ptx::tensor_load(shared + offsetof(Shared, q) + static_cast<std::uint32_t>(i) * C.block_m() * layout::row_bytes,
                         &p.q, barrier, 64 * i, head * C.packed_heads, first_row, 0, batch);
      }
    }
  }
};

template <ForwardConfig C>
__device__ __forceinline__ void loader(const ForwardParameters& p, std::uint32_t shared) {
  Loader<C> load{p, shared, 0, 0, {}, {}, {}, 0};
  for (std::uint32_t tile = 0;; ++tile) {
    load.wait_slot();
    std::int32_t header[4];
    ptx::load_shared_v4(shared + offsetof(SharedMemory<C>, queue_header) + 16 * load.slot.stage, header);
    const std::int32_t blocks = header[2];
    load.batch = header[1] / p.query_heads;
    const std::int32_t head = header[1] - load.batch * p.query_heads;
    load.kv_head = head / p.query_heads_per_kv_head;
    // The first K goes ahead of Q: its slot is free earlier.
    std::int32_t block = 0;
    if (blocks > 0) block = load.load_k();
    load.load_q(header, tile, head);
    if (blocks < 0) break;
    for (std::int32_t j = 1; j < blocks; ++j) {
      const std::int32_t previous = block;
      block = load.load_k();
      load.load_v(previous);
    }
    if (blocks > 0) load.load_v(block);
    load.release_slot();
  }
}

}  // namespace flashmask::sm90::forward_pass
