// The column role where registers are left over (head_dim 64): dP has accumulators of its own, and dS registers of its
// own beside P's, so that dV, dK and the next tile's dP run under the next tile's softmax.
//
// Per tile: softmax -> dS, from P as it stands in the accumulators -> store dS -> issue the next tile's S, then dV, dK
// and the next tile's dP -> tell the dQ warpgroup of dS. All products of a tile are issued one after another: a
// warpgroup that finds the tensor cores taken by the other one waits once, and the stores of dS are done by the time
// they are fenced. A tile's Q and dO are held until the next tile's softmax is done.
#pragma once

#include <cstdint>

#include "sm90/backward/columns.cuh"

namespace flashmask::sm90::backward_pass {

template <BackwardConfig C>
struct OverlappedColumns : Columns<C> {
  using Base = Columns<C>;
  using Memory = SharedMemory<C>;
  using Ring = RingPosition<Memory::row_stages>;
  using Base::arrive, Base::arrive_everywhere, Base::wait, Base::pin_all;
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
    this->issue_product(s, memory.k[0], this->key_buffer(word), memory.q[0], row.stage);
  }
  /// dP^T of the tile at `row`.
  __device__ __forceinline__ void issue_dp(const TileWord& word, const Ring& row) {
    this->issue_product(dp, memory.v[0], this->value_buffer(word), memory.dout[0], row.stage);
  }
  static_assert(C.one_arrival(), "dO is not waited for: it has to land on the barrier of its Q");
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
    if (tile != 0) this->write_block(this->take_block(slot));
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
    this->wait_value(word);
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

  /// Pairs `First` to `First` + 7 of dS = P (dP - D), dP having started from -D, from P before it was rounded.
  template <int First>
  __device__ __forceinline__ void compute_exact_ds() {
#pragma unroll
    for (int i = First; i < First + 8; ++i) {
      ds[i] = pack_pair<C>(s[2 * i] * dp[2 * i], s[2 * i + 1] * dp[2 * i + 1]);
    }
  }
  /// dS; then `s` and `dp` start from the statistics of the tile at `next`. In halves, each of which frees the
  /// registers that the next loads need: all at once spills.
  __device__ __forceinline__ void compute_ds_and_start(const Ring& next) {
    std::int32_t scores[2][4][2], products[2][4][2];
    this->load_stats(next.stage, 0, scores[0]);
    compute_exact_ds<0>();
    this->load_stats(next.stage, 1, products[0]);
    this->load_stats(next.stage, 0, scores[1], 4);
    compute_exact_ds<8>();
    this->load_stats(next.stage, 1, products[1], 4);
    this->start_from(scores[0], s), this->start_from(scores[1], s, 4);
    this->start_from(products[0], dp), this->start_from(products[1], dp, 4);
  }

  /// One tile; returns the next tile's word. On entry its S^T stands in `s`, its dP^T and the last tile's dV and dK are
  /// on the way.
  __device__ __forceinline__ TileWord step(const TileWord& word, std::uint32_t tile, Ring& row) {
    const std::uint32_t stage = row.stage;
    const bool first = (word.flags & tile_flag::first) != 0;
    row.advance();
    this->softmax();
    if ((word.flags & tile_flag::partial) != 0) this->apply_intervals(word);
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
    if (tile != 0) arrive_everywhere(memory.empty_q, previous);  // which stands for dO too
    if ((word.flags & tile_flag::last) != 0) arrive(memory.empty_v, this->value_buffer(word));
    this->pack_p();
    compute_ds_and_start(row);
    pin_all(ds);  // or the compiler puts dS under the product
    wait(memory.empty_ds, ds_stage(tile), (tile / Memory::stages & 1U) ^ 1U);
    if constexpr (C.accumulate_dq) this->store_ds(ds_stage(tile), ds);
    if ((next.flags & tile_flag::first) != 0) this->wait_key(next);
    pin_all(s);
    ptx::wgmma_fence();
    issue_scores(next, row);  // after the last tile: of stale ones, not used
    ptx::wgmma_commit();
    if (write) this->write_block(complete);
    if ((next.flags & tile_flag::first) != 0) this->wait_value(next);
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
    this->publish_ds(ds_stage(tile));
    ptx::wgmma_wait<1>();  // S of the next tile
    pin_all(s);
    previous = stage;
    return next;
  }
};

}  // namespace flashmask::sm90::backward_pass
