// Role of one thread: walks the row lists of its column blocks and issues every copy, up to two tiles ahead.
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
  std::uint32_t tiles = 0;   ///< issued so far
  std::uint32_t blocks = 0;  ///< begun so far
  RingPosition<Memory::row_stages> row;

  __device__ Loader(const MainParameters& parameters, Memory& shared) : p(parameters), memory(shared) {}

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
    wait_for(ptx::shared_address(barriers + row.stage), row.parity ^ 1U, p.error);
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
    wait_for(ptx::shared_address(&memory.empty_v), (blocks & 1U) ^ 1U, p.error);
    ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&memory.full_v), kv_bytes);
    copy_tile(p.v, memory.v, block_columns * layout::row_bytes, &memory.full_v, current().block * block_columns,
              current().kv_head / p.parts, current().batch);
  }

  __device__ void post(const TileWord& word) {
    ptx::store_shared_v4(ptx::shared_address(&memory.words[tiles % Memory::word_slots]),
                         static_cast<std::uint32_t>(word.row), word.flags, static_cast<std::uint32_t>(word.list),
                         static_cast<std::uint32_t>(word.dq_tile));
  }

  /// One tile: the word, Q with its statistics, dO, and where a work block begins, K before Q and V last.
  __device__ void load_tile(std::int32_t query_head, std::int32_t tile, std::uint32_t flags) {
    const std::uint32_t stage = row.stage;
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
    row.advance();
  }

  /// The row tiles of one query head; `first` is the flag of the block's first tile and 0 afterwards.
  __device__ void load_list(std::int32_t head_in_group, std::int32_t last_head, std::uint32_t& first) {
    const std::int32_t query_head = current().kv_head * p.extents.group() + head_in_group;
    const std::int32_t list = p.extents.list(current().batch, query_head, current().block);
    std::int32_t run = p.lists.begin[list];
    for (std::int32_t left = p.lists.count[list]; left > 0; --left, ++run) {
      const int4 r = __ldg(reinterpret_cast<const int4*>(p.lists.runs + run));  // first, count, classes, bitmap
      const std::uint32_t partial = has_partial(static_cast<std::uint32_t>(r.z)) ? tile_flag::partial : 0U;
      for (std::int32_t tile = r.x; tile < r.x + r.y; ++tile) {
        const bool last = left == 1 && tile == r.x + r.y - 1 && head_in_group == last_head;
        load_tile(query_head, tile, partial | first | (last ? tile_flag::last : 0U));
        first = 0;
      }
    }
  }

  /// Where a CTA of this KV head was last.
  [[nodiscard]] __device__ std::uint32_t* front() {
    return p.front + current().batch * p.extents.kv_heads + current().kv_head;
  }

  /// The tiles of the whole group, from the front on.
  __device__ void sweep_block() {
    std::uint32_t first = tile_flag::first;
    sweep(p.extents, p.lists, current(), memory.tiles[blocks % Memory::stages], ptx::load_volatile(front()),
          [&](std::int32_t head, std::int32_t tile, bool partial, bool last) {
            if (tiles % front_step == 0) ptx::store_volatile(front(), head * p.extents.row_tiles + tile);
            load_tile(current().kv_head * p.extents.group() + head, tile,
                      (partial ? tile_flag::partial : 0U) | first | (last ? tile_flag::last : 0U));
            first = 0;
          });
  }

  /// From the top: a sweep costs the loader 1% of a call's time (docs/backward.md).
  __device__ void load_block() {
    const std::int32_t last_head = current().last_head;
    std::uint32_t first = tile_flag::first;
    for (std::int32_t g = 0; g <= last_head; ++g) load_list(g, last_head, first);
  }

  __device__ void run() {
    for (;; ++blocks) {
      wait_for(ptx::shared_address(&memory.full_work[blocks % Memory::stages]), blocks / Memory::stages & 1U, p.error);
      if (current().block < 0) break;
      if (p.front != nullptr) {
        sweep_block();
      } else {
        load_block();
      }
    }
    // Tell the readers that nothing follows.
    wait_empty(memory.empty_q);
    post({0, tile_flag::end, 0, 0});
    ptx::mbarrier_arrive(ptx::shared_address(&memory.full_q[row.stage]));
  }
};

}  // namespace flashmask::sm90::backward_pass
