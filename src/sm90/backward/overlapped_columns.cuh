// The column role where registers are left over (head_dim 64): dP has accumulators of its own, and dS registers of its
// own beside P's, so that the products of the next tile run under the arithmetic of this one.
//
// Per tile: softmax -> tell the dQ warpgroup of the last tile's dS -> issue the next tile's S -> dS -> issue dV, dK and
// the next tile's dP -> store dS. The dQ warpgroup hears of dS a phase after the stores were issued, because the
// fence between takes as long as half a softmax; a tile's Q and dO are held until the next tile's softmax is done.
#pragma once

#include <cstdint>

#include "sm90/backward/columns.cuh"

namespace flashmask::sm90::backward_pass {

template <BackwardConfig C>
struct OverlappedColumns : Columns<C> {
  using Base = Columns<C>;
  using Memory = SharedMemory<C>;
  using Ring = RingPosition<Memory::row_stages>;
  using Base::arrive, Base::wait, Base::pin_all;
  using Base::dk, Base::dv, Base::memory, Base::packed, Base::s;

  float dp[32];            // dP^T
  std::uint32_t ds[16];    // dS, while dV still reads P
  std::uint32_t previous;  // row stage of the last tile

  __device__ __forceinline__ OverlappedColumns(const MainParameters& parameters, Memory& shared,
                                               std::uint32_t warpgroup)
      : Base(parameters, shared, warpgroup), previous(Memory::row_stages - 1) {
#pragma unroll
    for (int i = 0; i < 32; ++i) dp[i] = 0.0F;
#pragma unroll
    for (int i = 0; i < 16; ++i) ds[i] = 0;
  }

  /// S^T of the tile at `row`, in the registers of the last one's.
  __device__ __forceinline__ void issue_scores(const TileWord& word, const Ring& row) {
    this->issue_product(s, memory.k[0], buffer_of(word.flags), memory.q[0], row.stage);
  }
  /// dP^T of the tile at `row`.
  __device__ __forceinline__ void issue_dp(const TileWord& word, const Ring& row) {
    this->issue_product(dp, memory.v[0], this->value_buffer(word), memory.dout[0], row.stage);
  }
  __device__ __forceinline__ void wait_dout(const TileWord& word, const Ring& row) {
    wait(memory.full_dout, row.stage, row.parity);
    if ((word.flags & tile_flag::first) != 0) this->wait_value(word);
  }
  __device__ __forceinline__ static std::uint32_t ds_stage(std::uint32_t tile) {
    return tile % Memory::stages;
  }

  __device__ __forceinline__ void run() {
    Ring row;
    wait(memory.full_q, 0, 0);
    TileWord word = this->read_word(0);
    if ((word.flags & tile_flag::end) == 0) begin_first_block(word, row);
    std::uint32_t tile = 0, slot = 0;
    for (; (word.flags & tile_flag::end) == 0; ++tile) {
      slot = buffer_of(word.flags);
      word = step(word, tile, row);
    }
    ptx::wgmma_wait<0>();
    pin_all(s);
    pin_all(dp);
    pin_all(dv);
    pin_all(dk);
    if (tile != 0) {
      this->publish_ds(ds_stage(tile - 1));
      this->write_block(this->take_block(slot));
    }
    // The dQ warpgroup waits for a tile that does not come: let it read the end word.
    wait(memory.empty_ds, ds_stage(tile), (tile / Memory::stages & 1U) ^ 1U);
    arrive(memory.full_ds, ds_stage(tile));
  }

  /// S^T and dP^T of the very first tile.
  __device__ __forceinline__ void begin_first_block(const TileWord& word, const Ring& row) {
    std::int32_t rows[8][2];
    this->load_stats(0, 0, rows);
    this->start_from(rows, s);
    this->load_stats(0, 1, rows);
    this->start_from(rows, dp);
    wait(memory.full_k, 0, 0);
    wait_dout(word, row);
    pin_all(s);
    pin_all(dp);
    ptx::wgmma_fence();
    issue_scores(word, row);
    issue_dp(word, row);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    pin_all(s);
    pin_all(dp);
  }

  /// One tile; returns the next tile's word. On entry its S^T stands in `s`, its dP^T and the last tile's dV and dK are
  /// on the way, and so is the last tile's dS into shared memory.
  __device__ __forceinline__ TileWord step(const TileWord& word, std::uint32_t tile, Ring& row) {
    const std::uint32_t stage = row.stage;
    const bool first = (word.flags & tile_flag::first) != 0;
    row.advance();
    this->softmax();
    if ((word.flags & tile_flag::partial) != 0) this->apply_intervals(word);
    if (tile != 0) this->publish_ds(ds_stage(tile - 1));
    // The block before this one is complete. Its slot is freed before the wait: if this block has no other tile, the
    // next word is of the block that is drawn into that slot.
    const bool write = first && tile != 0;
    WorkBlock complete{};
    if (write) complete = this->take_block(buffer_of(word.flags) ^ 1U);
    wait(memory.full_q, row.stage, row.parity);
    const TileWord next = this->read_word(tile + 1);
    ptx::wgmma_wait<0>();
    pin_all(dp);
    pin_all(dv);
    pin_all(dk);
    pin_all(packed);
    pin_all(ds);
    std::int32_t rows[8][2];
    this->load_stats(row.stage, 0, rows);
    if (tile != 0) arrive(memory.empty_q, previous), arrive(memory.empty_dout, previous);
    if ((word.flags & tile_flag::last) != 0) arrive(memory.empty_v, this->value_buffer(word));
    this->pack_p();
    this->start_from(rows, s);
    if ((next.flags & tile_flag::first) != 0) wait(memory.full_k, buffer_of(next.flags), parity_of(next.flags));
    pin_all(s);
    ptx::wgmma_fence();
    issue_scores(next, row);  // after the last tile: of stale ones, not used
    ptx::wgmma_commit();
    if (write) this->write_block(complete);
    this->template compute_ds<0>(dp, ds);
    this->load_stats(row.stage, 1, rows);
    this->template compute_ds<8>(dp, ds);
    this->start_from(rows, dp);

    if ((next.flags & tile_flag::end) == 0) wait_dout(next, row);
    pin_all(dp);
    pin_all(packed);
    pin_all(ds);
    pin_all(dv);
    pin_all(dk);
    ptx::wgmma_fence();
    this->issue_gradient(dv, packed, memory.dout[0], stage, !first);
    this->issue_gradient(dk, ds, memory.q[0], stage, !first);
    issue_dp(next, row);  // after the last tile: of stale ones, not used
    ptx::wgmma_commit();
    wait(memory.empty_ds, ds_stage(tile), (tile / Memory::stages & 1U) ^ 1U);
    if constexpr (C.accumulate_dq) this->store_ds(ds_stage(tile), ds);
    ptx::wgmma_wait<1>();  // S of the next tile
    pin_all(s);
    previous = stage;
    return next;
  }
};

}  // namespace flashmask::sm90::backward_pass
