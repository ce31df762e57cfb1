// Role consumer (a warpgroup for 64 query rows). Per block: the scores of the next block and then the output product of
// the current one are issued before the softmax of the next begins, so the tensor cores work through both while the
// exponentials run. A warpgroup skips the blocks that its own 64 rows do not see.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sm90/forward/epilogue.cuh"
#include "sm90/forward/mask_generator.cuh"
#include "sm90/forward/parameters.hpp"
#include "sm90/forward/products.cuh"
#include "sm90/forward/shared_memory.hpp"
#include "sm90/forward/softmax.cuh"
#include "sm90/forward/visibility.cuh"
#include "sm90/ptx/shared_address.cuh"
#include "sm90/sync/bounded_wait.cuh"

namespace flashmask::sm90::forward_pass {

/// What a warpgroup needs to know of a block.
struct BlockView {
  TileClass tile_class;  ///< for this warpgroup's rows
  bool generated;        ///< the mask generators have made words for this block
  std::int32_t bitmap;
};

template <ForwardConfig C>
struct Consumer {
  using Shared = SharedMemory<C>;
  using Ring = RingPosition<C.stages>;
  using VisibilityRing = RingPosition<visibility_slots>;
  const ForwardParameters& p;
  std::uint32_t shared;
  std::uint32_t warpgroup;  ///< 0 to consumers - 1, uniform

  __device__ __forceinline__ void wait(std::uint32_t barrier, std::uint32_t parity, WaitSite site) const {
    bounded_wait(shared + barrier, parity, &p.workspace->error, site);
  }
  /// One arrival a warp, or one a lane.
  __device__ __forceinline__ void release(std::uint32_t barrier) const {
    __syncwarp();
    if (C.every_lane_arrives || threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared + barrier);
  }
  __device__ __forceinline__ void wait_k(const Ring& ring) const {
    wait(offsetof(Shared, full_k) + 8 * ring.stage, ring.parity, WaitSite::full_k);
  }
  __device__ __forceinline__ void wait_v(const Ring& ring) const {
    wait(offsetof(Shared, full_v) + 8 * ring.stage, ring.parity, WaitSite::full_v);
  }
  __device__ __forceinline__ void release_k(const Ring& ring) const {
    release(offsetof(Shared, empty_k) + 8 * ring.stage);
  }
  __device__ __forceinline__ void release_v(const Ring& ring) const {
    release(offsetof(Shared, empty_v) + 8 * ring.stage);
  }

  /// Everything that steers control flow passes a shuffle, so that the compiler knows it is uniform.
  __device__ __forceinline__ BlockView view_block(const Ring& ring) const {
    std::int32_t info[4];
    ptx::load_shared_v4(shared + offsetof(Shared, block) + 16 * ring.stage, info);
    const auto classes = static_cast<std::uint32_t>(__shfl_sync(0xFFFFFFFFU, info[0], 0));
    const std::int32_t bitmap = __shfl_sync(0xFFFFFFFFU, info[1], 0);
    return {subtile_class(classes, static_cast<std::int32_t>(warpgroup)), needs_visibility(classes, bitmap), bitmap};
  }

  /// Round robin over the warpgroups: each issues the products of a block in its turn, every block takes one turn.
  __device__ __forceinline__ void take_turn() const {
    if constexpr (C.take_turns) ptx::named_barrier_sync(1 + warpgroup, 256);
  }
  __device__ __forceinline__ void pass_turn() const {
    if constexpr (C.take_turns) {
      ptx::named_barrier_arrive(warpgroup + 1 == C.consumers ? 1 : warpgroup + 2, 256);
    }
  }

  __device__ __forceinline__ std::uint64_t q_descriptor() const {
    return layout::k_major_descriptor(shared + offsetof(Shared, q)) + warpgroup * layout::row_step(64);
  }
  __device__ __forceinline__ std::uint64_t k_descriptor(const Ring& ring) const {
    return layout::k_major_descriptor(shared + offsetof(Shared, k)) + ring.stage * (C.kv_bytes() >> 4);
  }
  __device__ __forceinline__ std::uint64_t v_descriptor(const Ring& ring) const {
    return layout::mn_major_descriptor(shared + offsetof(Shared, v), C.block_n) + ring.stage * (C.kv_bytes() >> 4);
  }

  /// Words of a partial block that has a bitmap, asked for before the products so that their latency passes under them.
  __device__ __forceinline__ Visibility load_bitmap(const BlockView& view) const {
    Visibility visibility{{~0U, ~0U}};
    if (view.tile_class == TileClass::partial && !view.generated) {
      const uint2 words =
          __ldg(reinterpret_cast<const uint2*>(p.map.bitmaps) +
                static_cast<std::int64_t>(view.bitmap) * (128 * C.consumers) + (ptx::thread_index() - 128));
      visibility = {{words.x, words.y}};
    }
    return visibility;
  }

  /// Words of a partial block without one. Takes the block's turn with the mask generators, also where the rows of this
  /// warpgroup see all or nothing of it.
  __device__ __forceinline__ void take_generated(const BlockView& view, VisibilityRing& place,
                                                 Visibility& visibility) const {
    if (!view.generated) return;
    if (view.tile_class == TileClass::partial) {
      wait(offsetof(Shared, full_visibility) + 8 * place.stage, place.parity, WaitSite::full_visibility);
      std::int32_t words[2];
      ptx::load_shared_v2(
          shared + offsetof(Shared, visibility) + 8 * (place.stage * 128 * C.consumers + ptx::thread_index() - 128),
          words);
      visibility = {{static_cast<std::uint32_t>(words[0]), static_cast<std::uint32_t>(words[1])}};
    }
    release(offsetof(Shared, empty_visibility) + 8 * place.stage);
    place.advance();
  }

  /// The first block of a sequence: nothing to overlap with yet.
  __device__ __forceinline__ void first_block(Fragments<C>& f, RowState& state, const Ring& ring, const BlockView& view,
                                              VisibilityRing& place) const {
    Visibility visibility = load_bitmap(view);
    take_turn();
    issue_scores<C>(f, q_descriptor(), k_descriptor(ring));
    pass_turn();
    take_generated(view, place, visibility);
    ptx::wgmma_wait<0>();
    f.pin_s();
    release_k(ring);
    if (view.tile_class == TileClass::partial) apply_visibility<C>(f, visibility);
    raise_maximum<C>(f, state, p.scale_log2);
    const BlockSums sums = exponentiate<C>(f, state, p.scale_log2);
    state.sum[0] += sums.row[0];
    state.sum[1] += sums.row[1];
  }

  /// The main step: scores of `next` and output of `current` in flight under the softmax of `next`.
  __device__ __forceinline__ void overlapped_block(Fragments<C>& f, RowState& state, const Ring& current,
                                                   const Ring& next, const BlockView& view,
                                                   VisibilityRing& place) const {
    Visibility visibility = load_bitmap(view);
    take_turn();
    issue_scores<C>(f, q_descriptor(), k_descriptor(next));
    wait_v(current);
    issue_output<C>(f, v_descriptor(current));
    pass_turn();
    take_generated(view, place, visibility);
    ptx::wgmma_wait<1>();
    f.pin_s();
    release_k(next);
    if (view.tile_class == TileClass::partial) apply_visibility<C>(f, visibility);
    ptx::wgmma_wait<0>();
    f.pin_p();
    f.pin_o();
    release_v(current);
    softmax<C>(f, state, p.scale_log2);
  }

  __device__ __forceinline__ void last_output(Fragments<C>& f, const Ring& ring) const {
    wait_v(ring);
    issue_output<C>(f, v_descriptor(ring));
    ptx::wgmma_wait<0>();
    f.pin_o();
    release_v(ring);
  }
};

/// One row tile: sequences of blocks that this warpgroup sees, each pipelined, with skipped blocks between them.
template <ForwardConfig C>
__device__ __forceinline__ void process_row_tile(const Consumer<C>& c, Fragments<C>& f, RowState& state,
                                                 RingPosition<C.stages>& ring, RingPosition<visibility_slots>& place,
                                                 std::int32_t blocks) {
  bool holds_q = true;
  while (blocks > 0) {
    c.wait_k(ring);
    BlockView view = c.view_block(ring);
    if (view.tile_class == TileClass::masked) {
      c.take_turn();
      c.pass_turn();
      Visibility unused;
      c.take_generated(view, place, unused);
      c.release_k(ring);
      c.wait_v(ring);
      c.release_v(ring);
      ring.advance();
      --blocks;
      continue;
    }
    c.first_block(f, state, ring, view, place);
    while (--blocks > 0) {
      RingPosition<C.stages> next = ring;
      next.advance();
      c.wait_k(next);
      view = c.view_block(next);
      if (view.tile_class == TileClass::masked) break;
      c.overlapped_block(f, state, ring, next, view, place);
      ring = next;
    }
    // Q goes back only after the last softmax: an earlier release lets warpgroups drift apart, which costs 2 to 8%.
    if (blocks == 0) {
      c.release(offsetof(SharedMemory<C>, empty_q));
      holds_q = false;
    }
    c.last_output(f, ring);
    ring.advance();
  }
  if (holds_q) c.release(offsetof(SharedMemory<C>, empty_q));
}

template <ForwardConfig C>
__device__ __forceinline__ void consumer(const ForwardParameters& p, std::uint32_t shared) {
  const std::uint32_t warp = __shfl_sync(0xFFFFFFFFU, ptx::thread_index() / 32, 0) - 4;
  const Consumer<C> c{p, shared, warp / 4};
  if (warp / 4 == C.consumers - 1) c.pass_turn();  // the first turn is the first warpgroup's
  Fragments<C> f{};
  RingPosition<C.stages> ring;
  RingPosition<visibility_slots> place;
  for (std::uint32_t tile = 0;; ++tile) {
    c.wait(offsetof(SharedMemory<C>, full_q), tile & 1U, WaitSite::full_q);
    const std::uint32_t header = shared + offsetof(SharedMemory<C>, tile) + 16 * (tile & 1U);
    const auto blocks = static_cast<std::int32_t>(
        __shfl_sync(0xFFFFFFFFU, ptx::load_shared_u32(header + offsetof(TileHeader, blocks)), 0));
    if (blocks < 0) break;
#pragma unroll
    for (std::int32_t i = 0; i < C.head_dim / 2; ++i) f.o[i] = 0.0F;
    RowState state;
    process_row_tile<C>(c, f, state, ring, place, blocks);
    const auto row_tile = static_cast<std::int32_t>(ptx::load_shared_u32(header + offsetof(TileHeader, row_tile)));
    const auto unit = static_cast<std::int32_t>(ptx::load_shared_u32(header + offsetof(TileHeader, unit)));
    const std::int32_t first_row =
        row_tile * C.mask_rows() + strip_start(static_cast<std::int32_t>(warp), C.packed_heads);
    store_row_tile<C>(p, shared, warp, unit, first_row, state, f);
  }
  // Shared memory must outlive the last stores that read it.
  if (ptx::lane_index() == 0) ptx::bulk_wait<0>();
}

}  // namespace flashmask::sm90::forward_pass
