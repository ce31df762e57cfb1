// Role of one thread: walks the row lists of its column blocks and issues every copy, tiles ahead of their use.
#pragma once

#include <cstdint>

#include "sm90/backward/parameters.hpp"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/sweep.hpp"
#include "sm90/backward/wait.cuh"
#include "sm90/ptx/bulk_copy.cuh"
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

  /// Waits until the next tile's buffer is free.
  __device__ void wait_empty(std::uint64_t* barriers) {
    wait_for(ptx::shared_address(barriers + tiles % Memory::row_stages), (tiles / Memory::row_stages & 1U) ^ 1U,
             p.error);
  }

  /// Read from shared memory at every use: the loader has 32 registers.
  [[nodiscard]] __device__ const volatile WorkBlock& current() { return memory.work[blocks % Memory::stages]; }

  __device__ void load_key() {
    const std::uint32_t buffer = blocks % Memory::stages;
    wait_for(ptx::shared_address(&memory.empty_k[buffer]), (blocks / Memory::stages & 1U) ^ 1U, p.error);
    ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&memory.full_k[buffer]), kv_bytes);
    copy_tile(p.k, memory.k[buffer], block_columns * layout::row_bytes, &memory.full_k[buffer],
              current().block * block_columns, current().kv_head / p.parts, current().batch);
  }

  __device__ void load_value() {
    const std::uint32_t buffer = blocks % Memory::value_stages;
    wait_for(ptx::shared_address(&memory.empty_v[buffer]), (blocks / Memory::value_stages & 1U) ^ 1U, p.error);
    ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&memory.full_v[buffer]), kv_bytes);
    copy_tile(p.v, memory.v[buffer], block_columns * layout::row_bytes, &memory.full_v[buffer],
              current().block * block_columns, current().kv_head / p.parts, current().batch);
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
    ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&memory.full_q[stage]), tile_bytes + sizeof(memory.stats[0]));
    ptx::bulk_load(ptx::shared_address(memory.stats[stage]),
                   p.rows.stats + static_cast<std::int64_t>(flat) * stats_floats, sizeof(memory.stats[0]),
                   ptx::shared_address(&memory.full_q[stage]));
    const bool first = (flags & tile_flag::first) != 0;
    if (first) load_key();
    copy_tile(p.q, memory.q[stage], block_rows * layout::row_bytes, &memory.full_q[stage], tile * block_rows,
              query_head, current().batch);
    wait_empty(memory.empty_dout);
    ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&memory.full_dout[stage]), tile_bytes);
    copy_tile(p.dout, memory.dout[stage], block_rows * layout::row_bytes, &memory.full_dout[stage], tile * block_rows,
              query_head, current().batch);
    if (first) load_value();
    ++tiles;
  }

  /// Where a CTA of this KV head was last.
  [[nodiscard]] __device__ std::uint32_t* front() {
    return p.front + current().batch * p.extents.kv_heads + current().kv_head;
  }

  /// The tiles of the whole group, from the front on where there is one.
  __device__ void load_block() {
    const volatile std::int32_t& count = memory.tiles[blocks % Memory::stages];
    sweep(p.extents, p.lists, current(), count, p.front == nullptr ? 0U : ptx::load_volatile(front()),
          [&](std::int32_t head, std::int32_t tile, bool partial, std::int32_t left) {
            if (p.front != nullptr && tiles % front_step == 0) {
              ptx::store_volatile(front(), head * p.extents.row_tiles + tile);
            }
            load_tile(current().kv_head * p.extents.group() + head, tile,
                      (partial ? tile_flag::partial : 0U) | (left == 0 ? tile_flag::last : 0U) |
                          (left + 1 == count ? tile_flag::first : 0U));
          });
  }

  __device__ void run() {
    for (;; blocks = blocks + 1) {
      wait_for(ptx::shared_address(&memory.full_work[blocks % Memory::stages]), blocks / Memory::stages & 1U, p.error);
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
