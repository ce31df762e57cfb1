// Role of warpgroups 0 and 1: 64 key columns each. Scores transposed, S^T = K Q^T, so that a thread's rows of the
// accumulators are key columns: dV += P^T dO and dK += dS^T Q take P and dS from registers and stay in registers for a
// whole work block.
//
// Per tile: softmax -> issue dP (into the registers of S) and dV -> dS -> issue the next tile's S and dK -> hand dS to
// the dQ warpgroup. The two warpgroups drift freely and cover each other's arithmetic.
#pragma once

#include <cstdint>

#include "sm90/backward/gradient_store.cuh"
#include "sm90/backward/operand.cuh"
#include "sm90/backward/parameters.hpp"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/split.hpp"
#include "sm90/backward/visibility.hpp"
#include "sm90/backward/wait.cuh"
#include "sm90/layout/descriptor.hpp"
#include "sm90/layout/fragment.hpp"
#include "sm90/ptx/cluster.cuh"
#include "sm90/ptx/fence.cuh"
#include "sm90/ptx/matrix.cuh"
#include "sm90/ptx/shared_address.cuh"
#include "sm90/ptx/warp.cuh"
#include "sm90/ptx/wgmma.cuh"

namespace flashmask::sm90::backward_pass {

template <BackwardConfig C>
struct Columns {
  using Memory = SharedMemory<C>;
  using RowRing = RingPosition<Memory::row_stages>;
  using DoutRing = RingPosition<Memory::dout_stages>;
  static constexpr std::uint32_t head_steps = static_cast<std::uint32_t>(C.head_dim) / 16;
  static constexpr std::uint32_t row_steps = block_rows / 16;
  static constexpr ptx::Operand operand = operand_of(C);

  float s[32];               // S^T, then dP^T: 64 columns x 64 rows
  std::uint32_t packed[16];  // P, then dS, 16 bits: A operands
  float dv[C.head_dim / 2];
  float dk[C.head_dim / 2];

  const MainParameters& p;
  Memory& memory;
  std::uint32_t group;     ///< 0 or 1: which 64 columns
  std::uint32_t rank = 0;  ///< of the CTA in its pair
  // Kept over the loop: reading the lane index anew costs the latency of S2R in the middle of the chain.
  std::uint32_t row_pair;    ///< bytes to this lane's pair of rows inside the statistics
  std::uint32_t ds_address;  ///< where this lane's rows of dS go, stage 0

  __device__ __forceinline__ Columns(const MainParameters& parameters, Memory& shared, std::uint32_t warpgroup)
      : p(parameters), memory(shared), group(warpgroup) {
#pragma unroll
    for (int i = 0; i < C.head_dim / 2; ++i) dv[i] = dk[i] = 0.0F;
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i] = 0.0F;
#pragma unroll
    for (int i = 0; i < 16; ++i) packed[i] = 0;
    if constexpr (C.paired) rank = ptx::cluster_rank();
    const std::uint32_t lane = ptx::lane_index();
    const std::uint32_t warp = ptx::thread_index() / 32 % 4;
    row_pair = lane % 4 * 8;
    ds_address = ptx::shared_address(memory.ds[0][group]) + (lane / 16 * 8 + lane % 8) * layout::row_bytes +
                 (((2 * warp + lane / 8 % 2) ^ lane % 8) << 4);
  }

  __device__ __forceinline__ void wait(std::uint64_t* barriers, std::uint32_t stage, std::uint32_t parity) {
    wait_for(ptx::shared_address(barriers + stage), parity, p.error);
  }
  __device__ __forceinline__ void arrive(std::uint64_t* barriers, std::uint32_t stage) {
    __syncwarp();  // what the other lanes read comes before the arrival
    if (C.every_lane_arrives || ptx::elect_one()) ptx::mbarrier_arrive(ptx::shared_address(barriers + stage));
  }
  /// For tiles that both CTAs of a pair load for each other.
  __device__ __forceinline__ void arrive_everywhere(std::uint64_t* barriers, std::uint32_t stage) {
    __syncwarp();
    if (C.every_lane_arrives || ptx::elect_one()) {
      ptx::mbarrier_arrive(ptx::shared_address(barriers + stage));
      if constexpr (C.paired) ptx::mbarrier_arrive_remote(ptx::shared_address(barriers + stage), rank ^ 1U);
    }
  }
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t value_buffer(const TileWord& word) {
    return buffer_of(word.flags, Memory::value_stages);
  }
  __device__ __forceinline__ void wait_value(const TileWord& word) {
    wait(memory.full_v, value_buffer(word), parity_of(word.flags, Memory::value_stages));
  }
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t key_buffer(const TileWord& word) {
    return buffer_of(word.flags, Memory::key_stages);
  }
  __device__ __forceinline__ void wait_key(const TileWord& word) {
    wait(memory.full_k, key_buffer(word), parity_of(word.flags, Memory::key_stages));
  }
  __device__ __forceinline__ TileWord read_word(std::uint32_t tile) {
    std::int32_t w[4];
    ptx::load_shared_v4(ptx::shared_address(&memory.words[tile % Memory::word_slots]), w);
    return {__shfl_sync(~0U, w[0], 0), static_cast<std::uint32_t>(__shfl_sync(~0U, w[1], 0)), __shfl_sync(~0U, w[2], 0),
            w[3]};
  }

  /// Descriptor offset of stage `stage` of tiles of `bytes` bytes: bases are constants, so a stage costs one addition.
  static constexpr std::uint64_t stage_step(std::uint32_t stage, std::uint32_t bytes) {
    return static_cast<std::uint64_t>(stage) * (bytes >> 4);
  }

  /// scores += this warpgroup's columns (K or V, in `buffer`) x rows^T (Q or dO), not waited for.
  __device__ __forceinline__ void issue_product(float (&scores)[32], const std::uint8_t* columns, std::uint32_t buffer,
                                                const std::uint8_t* rows, std::uint32_t stage) {
    const std::uint64_t a = layout::k_major_descriptor(ptx::shared_address(columns)) + group * layout::row_step(64) +
                            stage_step(buffer, C.tile_bytes(block_columns));
    const std::uint64_t b =
        layout::k_major_descriptor(ptx::shared_address(rows)) + stage_step(stage, C.tile_bytes(block_rows));
#pragma unroll
    for (std::uint32_t i = 0; i < head_steps; ++i) {
      ptx::wgmma<operand, ptx::Major::k, ptx::Major::k>(scores, a + layout::k_major_step(i, block_columns),
                                                        b + layout::k_major_step(i, block_rows), true);
    }
  }

  /// gradient += weights^T tile: P and dO for dV, dS and Q for dK.
  __device__ __forceinline__ void issue_gradient(float (&gradient)[C.head_dim / 2], const std::uint32_t (&weights)[16],
                                                 const std::uint8_t* tiles, std::uint32_t stage, bool accumulate) {
    const std::uint64_t b = layout::mn_major_descriptor(ptx::shared_address(tiles), block_rows) +
                            stage_step(stage, C.tile_bytes(block_rows));
#pragma unroll
    for (std::uint32_t i = 0; i < row_steps; ++i) {
      ptx::wgmma<operand, ptx::Major::mn>(gradient, weights[4 * i], weights[4 * i + 1], weights[4 * i + 2],
                                          weights[4 * i + 3], b + layout::mn_major_step(i), i != 0 || accumulate);
    }
  }

  /// What this thread's rows start from (0: -LSE / scale, for S; 1: -D, for dP): two rows of `Groups` of the eight
  /// groups of accumulators, from `first` on.
  template <int Groups>
  __device__ __forceinline__ void load_stats(std::uint32_t stage, std::uint32_t which, std::int32_t (&rows)[Groups][2],
                                             std::uint32_t first = 0) {
    const std::uint32_t at = ptx::shared_address(memory.stats[0][which]) + stage * sizeof(memory.stats[0]) + row_pair;
#pragma unroll
    for (std::uint32_t k = 0; k < Groups; ++k) ptx::load_shared_v2(at + (first + k) * 32, rows[k]);
  }
  /// Accumulators that start from it: no subtraction is left for the chain between two products.
  template <int Groups>
  __device__ __forceinline__ static void start_from(const std::int32_t (&rows)[Groups][2], float (&scores)[32],
                                                    int first = 0) {
#pragma unroll
    for (int i = 0; i < 4 * Groups; ++i) scores[4 * first + i] = __int_as_float(rows[i / 4][i % 2]);
  }

  /// P = 2^(S scale) in place, S having started from -LSE / scale.
  __device__ __forceinline__ void softmax() {
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i] = ptx::exp2_approx(s[i] * p.scale_log2);
  }

  /// Zeroes what the mask hides.
  __device__ __forceinline__ void apply_intervals(const TileWord& word) {
    const std::uint32_t thread = ptx::thread_index() % warpgroup_threads;
    const std::int32_t base = word.row + static_cast<std::int32_t>(thread % 4 * 2);
    const int4* column = p.intervals + static_cast<std::int64_t>(word.list) * C.work_columns() + rank * block_columns +
                         group * 64 + layout::accumulator_row(thread, 0);
    const int4 a = __ldg(column);
    const int4 b = __ldg(column + 8);
    const std::uint32_t visible = visible_rows(a.x, a.y, a.z, a.w, base) | visible_rows(b.x, b.y, b.z, b.w, base) << 16;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int bit = (i >> 2) * 2 + (i & 1) + ((i >> 1) & 1) * 16;
      s[i] = (visible >> bit & 1U) != 0 ? s[i] : 0.0F;
    }
  }

  __device__ __forceinline__ void pack_p() {
#pragma unroll
    for (int i = 0; i < 16; ++i) packed[i] = pack_pair<C>(s[2 * i], s[2 * i + 1]);
  }

  /// Pairs `First` to `First` + 7 of dS = P (dP - D), from the rounded P, dP having started from -D. In halves: the
  /// second one hides the load of what the next product starts from, for which the first one has freed the registers.
  template <int First>
  __device__ __forceinline__ void compute_ds(const float (&dp)[32], std::uint32_t (&ds)[16]) {
#pragma unroll
    for (int i = First; i < First + 8; ++i) {
      const float2 probability = unpack_pair<C>(packed[i]);
      ds[i] = pack_pair<C>(probability.x * dp[2 * i], probability.y * dp[2 * i + 1]);
    }
  }

  /// dS as [row][column] for the dQ warpgroup; to be followed by publish_ds.
  __device__ __forceinline__ void store_ds(std::uint32_t stage, const std::uint32_t (&ds)[16]) {
    const std::uint32_t at = ds_address + stage * sizeof(memory.ds[0]);
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      ptx::stmatrix_x4_trans(at + m * 16 * layout::row_bytes, ds[4 * m], ds[4 * m + 1], ds[4 * m + 2], ds[4 * m + 3]);
    }
  }
  __device__ __forceinline__ void publish_ds(std::uint32_t stage) {
    if constexpr (C.accumulate_dq) ptx::fence_proxy_async_shared();
    arrive(memory.full_ds, stage);
  }

  template <class T, int N>
  __device__ __forceinline__ static void pin_all(T (&values)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) ptx::pin(values[i]);
  }

  /// Where the dK and dV of the complete work block in `slot` belong; the slot is free then.
  [[nodiscard]] __device__ __forceinline__ WorkBlock take_block(std::uint32_t slot) {
    std::int32_t w[4];
    ptx::load_shared_v4(ptx::shared_address(&memory.work[slot]), w);
    if constexpr (C.paired) {  // the scheduler of the first CTA fills both slots
      __syncwarp();
      if (C.every_lane_arrives || ptx::elect_one()) {
        ptx::mbarrier_arrive_remote(ptx::shared_address(memory.empty_work + slot), 0);
      }
    } else {
      arrive(memory.empty_work, slot);
    }
    return {w[0], w[1], w[2], w[3]};
  }
  /// dV and dK of that block, then the completion signal.
  __device__ __forceinline__ void write_block(const WorkBlock& place) {
    write_gradient(place, dv, p.dv, 0, 1.0F);
    write_gradient(place, dk, p.dk, part_floats(p.extents, C.head_dim), p.scale);
    if (p.signal.done == nullptr) return;
    const std::int32_t column = first_column(place);  // of a last pair's second CTA it may lie beyond the end
    if (!C.paired || column < p.extents.columns) signal_block(p.signal, column, p.extents.columns);
  }
  /// Of this CTA in a work block.
  [[nodiscard]] __device__ __forceinline__ std::int32_t first_column(const WorkBlock& place) const {
    return (place.block * C.ctas() + static_cast<std::int32_t>(rank)) * block_columns;
  }
  /// To the tensor, or, where groups are split, to the float32 sums at `part`.
  __device__ __forceinline__ void write_gradient(const WorkBlock& place, const float (&gradient)[C.head_dim / 2],
                                                 const StridedTensor& tensor, std::int64_t part, float scale) {
    const std::int32_t column = first_column(place) + static_cast<std::int32_t>(group) * piece_columns;
    if (p.part_sums != nullptr) {
      store_part<C>(p.part_sums + part + part_offset(p.extents, C.head_dim, place.batch, place.kv_head, column),
                    gradient);
      return;
    }
    store_gradient<C>({tensor.at(place.batch, column, place.kv_head), tensor.position_stride,
                       p.extents.columns - column, p.extents.head_dim},
                      gradient, scale);
  }

  __device__ __forceinline__ void run() {
    wait(memory.full_q, 0, 0);
    TileWord word = read_word(0);
    if ((word.flags & tile_flag::end) == 0) begin_first_block();
    std::uint32_t tile = 0;
    RowRing row;
    DoutRing dout;
    for (; (word.flags & tile_flag::end) == 0; ++tile) word = step(word, tile, row, dout);
    ptx::wgmma_wait<0>();
    pin_all(dk);
    // The dQ warpgroup waits for a tile that does not come: let it read the end word.
    wait(memory.empty_ds, tile % Memory::stages, (tile / Memory::stages & 1U) ^ 1U);
    arrive(memory.full_ds, tile % Memory::stages);
  }

  /// S^T of the very first tile.
  __device__ __forceinline__ void begin_first_block() {
    std::int32_t rows[8][2];
    load_stats(0, 0, rows);
    start_from(rows, s);
    wait(memory.full_k, 0, 0);
    pin_all(s);
    ptx::wgmma_fence();
    issue_product(s, memory.k[0], 0, memory.q[0], 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    pin_all(s);
  }

  /// dK of a block's last tile, and its dK and dV out, while the next block's K is on the way to its one buffer.
  __device__ __forceinline__ void finish_block(const TileWord& word, std::uint32_t stage, bool first) {
    pin_all(packed);
    pin_all(dk);
    ptx::wgmma_fence();
    issue_gradient(dk, packed, memory.q[0], stage, !first);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    pin_all(packed);
    pin_all(dk);
    arrive_everywhere(memory.empty_q, stage);
    write_block(take_block(buffer_of(word.flags)));
  }

  /// One tile; returns the next tile's word. On entry its S^T stands in `s`, on exit the next tile's.
  __device__ __forceinline__ TileWord step(const TileWord& word, std::uint32_t tile, RowRing& row, DoutRing& dout) {
    const std::uint32_t stage = row.stage;
    constexpr bool one_ring = C.one_ring();
    const std::uint32_t dout_stage = one_ring ? stage : dout.stage;
    const bool first = (word.flags & tile_flag::first) != 0;
    std::int32_t rows[8][2];
    load_stats(stage, 1, rows);
    softmax();
    if ((word.flags & tile_flag::partial) != 0) apply_intervals(word);
    pack_p();
    start_from(rows, s);
    wait(memory.full_dout, dout_stage, one_ring ? row.parity : dout.parity);
    if (first) wait_value(word);
    pin_all(s);
    pin_all(packed);
    pin_all(dv);
    ptx::wgmma_fence();
    issue_product(s, memory.v[0], value_buffer(word), memory.dout[0], dout_stage);  // dP^T
    issue_gradient(dv, packed, memory.dout[0], dout_stage, !first);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    pin_all(s);
    pin_all(packed);
    pin_all(dv);
    if constexpr (!one_ring) {
      arrive_everywhere(memory.empty_dout, dout_stage);
      dout.advance();
    }
    if ((word.flags & tile_flag::last) != 0) arrive(memory.empty_v, value_buffer(word));
    compute_ds<0>(s, packed);
    row.advance();
    wait(memory.full_q, row.stage, row.parity);
    const TileWord next = read_word(tile + 1);
    load_stats(row.stage, 0, rows);
    compute_ds<8>(s, packed);
    start_from(rows, s);
    const std::uint32_t ds_stage = tile % Memory::stages;
    const bool border = (next.flags & tile_flag::first) != 0;
    if constexpr (C.paired) {
      // With one K buffer the next block's K waits for the dQ warpgroup, and that for dS: it must not wait for K.
      pin_all(packed);
      wait(memory.empty_ds, ds_stage, (tile / Memory::stages & 1U) ^ 1U);
      store_ds(ds_stage, packed);
      if (border) publish_ds(ds_stage);
    }
    const std::uint32_t key = key_buffer(next);
    if constexpr (C.paired) {
      if (border) {
        finish_block(word, stage, first);
        load_stats(row.stage, 0, rows);  // anew: there were no registers to keep it in
        start_from(rows, s);
        wait_key(next);
        pin_all(s);
        ptx::wgmma_fence();
        issue_product(s, memory.k[0], key, memory.q[0], row.stage);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        pin_all(s);
        return next;
      }
    } else {
      if (border) wait_key(next);
    }
    pin_all(s);
    pin_all(packed);
    pin_all(dk);
    ptx::wgmma_fence();
    issue_product(s, memory.k[0], key, memory.q[0], row.stage);  // S^T; after the last tile: of stale ones, not used
    issue_gradient(dk, packed, memory.q[0], stage, !first);
    ptx::wgmma_commit();
    if constexpr (C.paired) {
      publish_ds(ds_stage);
    } else {
      wait(memory.empty_ds, ds_stage, (tile / Memory::stages & 1U) ^ 1U);
      if constexpr (C.accumulate_dq) store_ds(ds_stage, packed);
      publish_ds(ds_stage);
    }
    ptx::wgmma_wait<0>();
    pin_all(s);
    pin_all(packed);
    pin_all(dk);
    arrive_everywhere(memory.empty_q, stage);
    if ((word.flags & tile_flag::last) != 0) write_block(take_block(buffer_of(word.flags)));
    return next;
  }
};

}  // namespace flashmask::sm90::backward_pass
