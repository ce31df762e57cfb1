// Role of one thread: walks the row lists of its column blocks and issues every copy, tiles ahead of their use.
#pragma once

#include <cstdint>

#include "sm90/backward/parameters.hpp"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/sweep.hpp"
#include "sm90/backward/wait.cuh"
#include "sm90/ptx/bulk_copy.cuh"
#include "sm90/ptx/cluster.cuh"
#include "sm90/ptx/fence.cuh"
#include "sm90/ptx/global_word.cuh"
#include "sm90/ptx/shared_address.cuh"
#include "sm90/ptx/tensor_copy.cuh"

namespace flashmask::sm90::backward_pass {

template <BackwardConfig C>
struct Loader {
  using Memory = SharedMemory<C>;
  static constexpr std::uint32_t kv_bytes = C.tile_bytes(block_columns);
  static constexpr std::uint32_t tile_bytes = C.tile_bytes(block_rows);

  const MainParameters& p;
  Memory& memory;
  std::uint32_t tiles = 0;         ///< issued so far
  volatile std::uint32_t& blocks;  ///< begun so far

  __device__ Loader(const MainParameters& parameters, Memory& shared)
      : p(parameters), memory(shared), blocks(shared.begun) {
    blocks = 0;
  }

  /// All 64-element halves of `rows` positions of one head. Bytes land on `barrier`.
  __device__ void copy_tile(const CUtensorMap& map, std::uint8_t* destination, std::uint32_t half_bytes,
                            std::uint64_t* barrier, std::int32_t position, std::int32_t head, std::int32_t batch) {
    const std::uint32_t to = ptx::shared_address(destination);
    const std::uint32_t on = ptx::shared_address(barrier);
    ptx::tensor_load(to, &map, on, 0, position, 0, head, batch);
    if (C.halves() == 2 && p.copies == 2) ptx::tensor_load(to + half_bytes, &map, on, 64, position, 0, head, batch);
  }

  /// The same of a tile of 64 rows. Paired, each CTA loads one half (of head_dim, or of the rows) into the shared
  /// memory of both.
  __device__ void copy_rows(const CUtensorMap& map, std::uint8_t* destination, std::uint64_t* barrier,
                            std::int32_t position, std::int32_t head, std::int32_t batch) {
    constexpr std::uint32_t half_bytes = block_rows * layout::row_bytes;
    if constexpr (C.paired) {
      constexpr bool by_rows = C.share_rows() != block_rows;
      const auto rank = static_cast<std::int32_t>(ptx::cluster_rank());
      ptx::tensor_load_multicast(ptx::shared_address(destination) + rank * (by_rows ? half_bytes / 2 : half_bytes),
                                 &map, ptx::shared_address(barrier), 3, by_rows ? 0 : rank * 64,
                                 by_rows ? position + rank * C.share_rows() : position, 0, head, batch);
    } else {
      copy_tile(map, destination, half_bytes, barrier, position, head, batch);
    }
  }

  /// Waits until the next tile's buffer of a ring is free, in both CTAs of a pair.
  template <std::uint32_t Stages>
  __device__ void wait_empty(std::uint64_t (&barriers)[Stages]) {
    wait_for(ptx::shared_address(barriers + tiles % Stages), (tiles / Stages & 1U) ^ 1U, p.error);
  }

  /// Read from shared memory at every use: the loader has 32 registers.
  [[nodiscard]] __device__ const volatile WorkBlock& current() { return memory.work[blocks % Memory::stages]; }

  /// First column of CTA `rank` of the pair in the current block.
  [[nodiscard]] __device__ std::int32_t first_column(std::uint32_t rank) {
    return (current().block * C.ctas() + static_cast<std::int32_t>(rank)) * block_columns;
  }
  [[nodiscard]] __device__ static std::uint32_t own_rank() {
    if constexpr (C.paired) return ptx::cluster_rank();
    return 0;
  }

  __device__ void load_key() {
    const std::uint32_t buffer = blocks % Memory::key_stages;
    wait_for(ptx::shared_address(&memory.empty_k[buffer]), (blocks / Memory::key_stages & 1U) ^ 1U, p.error);
    ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&memory.full_k[buffer]),
                                   kv_bytes + (C.paired ? block_columns * layout::row_bytes : 0));
    copy_tile(p.k, memory.k[buffer], block_columns * layout::row_bytes, &memory.full_k[buffer],
              first_column(own_rank()), current().kv_head / p.parts, current().batch);
    if constexpr (C.paired) {
      const std::uint32_t rank = own_rank();
      ptx::tensor_load(ptx::shared_address(memory.peer_k[buffer]), &p.k, ptx::shared_address(&memory.full_k[buffer]),
                       C.halves() == 1 ? 0 : static_cast<std::int32_t>(rank) * 64, first_column(rank ^ 1U), 0,
                       current().kv_head / p.parts, current().batch);
    }
  }

  __device__ void load_value() {
    const std::uint32_t buffer = blocks % Memory::value_stages;
    wait_for(ptx::shared_address(&memory.empty_v[buffer]), (blocks / Memory::value_stages & 1U) ^ 1U, p.error);
    ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&memory.full_v[buffer]), kv_bytes);
    copy_tile(p.v, memory.v[buffer], block_columns * layout::row_bytes, &memory.full_v[buffer],
              first_column(own_rank()), current().kv_head / p.parts, current().batch);
  }

  __device__ void post(const TileWord& word) {
    ptx::store_shared_v4(ptx::shared_address(&memory.words[tiles % Memory::word_slots]),
                         static_cast<std::uint32_t>(word.row), word.flags, static_cast<std::uint32_t>(word.list),
                         static_cast<std::uint32_t>(word.dq_tile));
  }

  /// One tile: the word, Q with its statistics, dO, and where a work block begins, K before Q and V last.
  __device__ void load_tile(std::int32_t query_head, std::int32_t tile, std::uint32_t flags) {
    const std::uint32_t stage = tiles % Memory::row_stages;
    flags |= block_flags(blocks);
    wait_empty(memory.empty_q);
    const std::int32_t flat = (current().batch * p.extents.query_heads + query_head) * p.extents.row_tiles + tile;
    post({tile * block_rows, flags, p.extents.list(current().batch, query_head, current().block), flat});
    ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&memory.full_q[stage]),
                                   (C.one_arrival() ? 2 : 1) * tile_bytes + sizeof(memory.stats[0]));
    ptx::bulk_load(ptx::shared_address(memory.stats[stage]),
                   p.rows.stats + static_cast<std::int64_t>(flat) * stats_floats, sizeof(memory.stats[0]),
                   ptx::shared_address(&memory.full_q[stage]));
    const bool first = (flags & tile_flag::first) != 0;
    if (first && !C.paired) load_key();
    copy_rows(p.q, memory.q[stage], &memory.full_q[stage], tile * block_rows, query_head, current().batch);
    if constexpr (!C.one_ring()) wait_empty(memory.empty_dout);
    const std::uint32_t dout_stage = tiles % Memory::dout_stages;
    std::uint64_t* const full_dout = (C.one_arrival() ? memory.full_q : memory.full_dout) + dout_stage;
    if constexpr (!C.one_arrival()) ptx::mbarrier_arrive_expect_tx(ptx::shared_address(full_dout), tile_bytes);
    copy_rows(p.dout, memory.dout[dout_stage], full_dout, tile * block_rows, query_head, current().batch);
    if (first && C.paired) load_key();  // its buffer is free late, and the other CTA waits for Q and dO
    if (first) load_value();
    ++tiles;
  }

  /// Where a CTA of this KV head was last.
  [[nodiscard]] __device__ std::uint32_t* front() {
    return p.front + current().batch * p.extents.kv_heads + current().kv_head;
  }

  /// Where the sweep of the block begins: the same in both CTAs of a pair.
  [[nodiscard]] __device__ std::uint32_t begin() {
    if (p.front == nullptr) return 0;
    if constexpr (C.paired) return memory.pair.fronts[blocks % Memory::stages];
    return ptx::load_volatile(front());
  }

  /// The tiles of the whole group, from the front on where there is one.
  __device__ void load_block() {
    const volatile std::int32_t& count = memory.tiles[blocks % Memory::stages];
    sweep(p.extents, p.lists, current(), count, begin(),
          [&](std::int32_t head, std::int32_t tile, bool partial, std::int32_t left) {
            if (p.front != nullptr && tiles % front_step == 0 && own_rank() == 0 && moves_front(p.extents, count)) {
              ptx::store_volatile(front(), head * p.extents.row_tiles + tile);
            }
            load_tile(current().kv_head * p.extents.group() + head, tile,
                      (partial ? tile_flag::partial : 0U) | (left == 0 ? tile_flag::last : 0U) |
                          (left + 1 == count ? tile_flag::first : 0U));
          });
  }

  __device__ void wait_for_work() {
    const std::uint32_t barrier = ptx::shared_address(&memory.full_work[blocks % Memory::stages]);
    wait_for(barrier, blocks / Memory::stages & 1U, p.error);
    if constexpr (C.paired) ptx::mbarrier_try_wait_cluster(barrier, blocks / Memory::stages & 1U);  // acquires
  }

  __device__ void run() {
    for (;; blocks = blocks + 1) {
      wait_for_work();
      if (current().block < 0) break;
      load_block();
    }
    // Tell the readers that nothing follows.
    wait_empty(memory.empty_q);
    post({0, tile_flag::end, 0, 0});
    ptx::mbarrier_arrive(ptx::shared_address(&memory.full_q[tiles % Memory::row_stages]));
  }
};

}  // namespace flashmask::sm90::backward_pass
