// Role mask_generator (two warps of the producer warpgroup): turns the intervals of partial blocks into one visibility
// word a consumer thread, ahead of the consumers, so that a partial block costs them one shared load and a select an
// element, needs no bitmap in global memory, and has no slow case.
//
// A warp takes 32 rows of each partial 64-row subtile. Each lane makes the 32-row masks of its columns with a few
// shifts; the words are then gathered by shuffles: four bits (two rows, two strips of 16 rows) a column at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sm90/forward/packing.hpp"
#include "sm90/forward/parameters.hpp"
#include "sm90/forward/shared_memory.hpp"
#include "sm90/ptx/integer.cuh"
#include "sm90/ptx/shared_address.cuh"
#include "sm90/ptx/warp.cuh"
#include "sm90/sync/bounded_wait.cuh"

namespace flashmask::sm90::forward_pass {

/// Whether the mask generators serve a block; the consumers ask the same question.
__device__ __forceinline__ bool needs_visibility(std::uint32_t classes, std::int32_t bitmap) {
  return bitmap < 0 && has_partial(classes);
}

/// Bits [0, n) set; none for n <= 0, all for n >= 32.
__device__ __forceinline__ std::uint32_t bits_below(std::int32_t n) {
  return ptx::shift_left(1U, static_cast<std::uint32_t>(max(n, 0))) - 1U;
}

/// The mask vectors of this lane's columns of the `Width` columns that one 32-bit half of a visibility word speaks of.
template <std::int32_t Width>
struct LaneColumns {
  static_assert(Width % 8 == 0 && Width >= 8 && Width <= 64, "half a visibility word covers up to 64 columns");
  static constexpr std::int32_t count = (Width + 31) / 32;
  std::int32_t lts[count], lte[count], uts[count], ute[count];

  __device__ __forceinline__ LaneColumns(const TileMapView& map, std::int64_t first_column) {
#pragma unroll
    for (std::int32_t i = 0; i < count; ++i) {
      // Lanes beyond the width repeat its last column.
      const std::int64_t at = first_column + min(32 * i + static_cast<std::int32_t>(ptx::lane_index()), Width - 1);
      lts[i] = __ldg(map.lts + at), lte[i] = __ldg(map.lte + at);
      uts[i] = __ldg(map.uts + at), ute[i] = __ldg(map.ute + at);
    }
  }

  /// Bit r: row `first_row + r` sees column i.
  __device__ __forceinline__ std::uint32_t visible_rows(std::int32_t i, std::int32_t first_row) const {
    const std::uint32_t lower = bits_below(lte[i] - first_row) & ~bits_below(lts[i] - first_row);
    const std::uint32_t upper = bits_below(ute[i] - first_row) & ~bits_below(uts[i] - first_row);
    return ~(lower | upper);
  }
};

/// Half the words of the 64 consumer threads that own 32 accumulator rows, the first of which is mask row `first_row`:
/// every second 32-bit word from `destination` on.
template <std::int32_t Width, std::int32_t PackedHeads>
__device__ __forceinline__ void write_half_words(const LaneColumns<Width>& columns, std::int32_t first_row,
                                                 std::uint32_t destination) {
  const std::uint32_t lane = ptx::lane_index();
  const std::uint32_t row = lane / 4, pair = lane % 4 * 2;
  std::uint32_t parity[2] = {0, 0};  // even and odd columns; bytes (strip, row + 8?), bits column groups
#pragma unroll
  for (std::int32_t group = 0; group < Width / 8; ++group) {
    const std::uint32_t visible = spread_rows<PackedHeads>(columns.visible_rows(group / 4, first_row));
#pragma unroll
    for (std::uint32_t odd = 0; odd < 2; ++odd) {
      const std::uint32_t mask =
          __shfl_sync(0xFFFFFFFFU, visible, static_cast<int>(8U * static_cast<std::uint32_t>(group % 4) + pair + odd));
      parity[odd] += ((mask >> row) & 0x01010101U) << group;
    }
  }
  ptx::store_shared_u32(destination + 8 * lane, __byte_perm(parity[0], parity[1], 0x5410U));
  ptx::store_shared_u32(destination + 8 * (32 + lane), __byte_perm(parity[0], parity[1], 0x7632U));
}

/// Brings the vectors of a block into L1 while another one is worked on.
template <ForwardConfig C>
__device__ __forceinline__ void prefetch_columns(const TileMapView& map, std::int64_t first_column) {
  constexpr std::uint32_t lines = (C.block_n * 4 + 127) / 128 + 1;
  const std::uint32_t lane = ptx::lane_index();
  if (lane >= 4 * lines) return;
  const std::uint32_t which = lane / lines;
  const std::int32_t* vector = which == 0 ? map.lts : which == 1 ? map.lte : which == 2 ? map.uts : map.ute;
  ptx::prefetch_l1(vector + first_column + min(static_cast<std::int32_t>(lane % lines) * 32, C.block_n - 1));
}

/// Columns [64 * Half, 64 * Half + 64) of one partial block: this warp's half of every partial subtile.
template <ForwardConfig C, std::int32_t Half>
__device__ __forceinline__ void generate_half(const ForwardParameters& p, std::uint32_t destination,
                                              std::int64_t first_column, std::int32_t first_row,
                                              std::uint32_t classes) {
  constexpr std::int32_t width = C.block_n - 64 * Half < 64 ? C.block_n - 64 * Half : 64;
  if constexpr (width > 0) {
    const LaneColumns<width> columns(p.map, first_column + 64 * Half);
#pragma unroll 1
    for (std::int32_t subtile = 0; subtile < C.consumers; ++subtile) {
      if (subtile_class(classes, subtile) != TileClass::partial) continue;
      write_half_words<width, C.packed_heads>(columns, first_row + half_start(subtile, 0, C.packed_heads),
                                              destination + 4 * Half + 8 * 128 * static_cast<std::uint32_t>(subtile));
    }
  }
}

template <ForwardConfig C>
__device__ __forceinline__ void mask_generator(const ForwardParameters& p, std::uint32_t shared, std::uint32_t half) {
  using Shared = SharedMemory<C>;
  std::uint32_t* error = &p.workspace->error;
  RingPosition<queue_slots> slot;
  RingPosition<visibility_slots> place;
  std::int32_t blocks = 0;  // of the row tile that are still to come
  std::int32_t row_tile = 0;
  std::int64_t columns = 0;  // where the vectors of this mask head start
  while (true) {
    bounded_wait(shared + offsetof(Shared, full_queue) + 8 * slot.stage, slot.parity, error, WaitSite::full_queue);
    if (blocks == 0) {  // a new row tile starts in this slot
      std::int32_t header[4];
      ptx::load_shared_v4(shared + offsetof(Shared, queue_header) + 16 * slot.stage, header);
      row_tile = header[0], blocks = header[2];
      columns = static_cast<std::int64_t>(header[3] / p.map.row_tiles) * p.map.padded_columns;
      if (blocks < 0) break;
    }
    const std::int32_t entries = min(blocks, queue_entries);
#pragma unroll 1
    for (std::int32_t i = 0; i < entries; ++i) {
      std::int32_t entry[4];
      const std::uint32_t at =
          shared + offsetof(Shared, queue) + 16 * (slot.stage * queue_entries + static_cast<std::uint32_t>(i));
      ptx::load_shared_v4(at, entry);
      const auto classes = static_cast<std::uint32_t>(entry[1]);
      if (!needs_visibility(classes, entry[2])) continue;
      if (i + 1 < entries) {
        prefetch_columns<C>(p.map, columns + static_cast<std::int64_t>(ptx::load_shared_u32(at + 16)) * C.unit());
      }
      bounded_wait(shared + offsetof(Shared, empty_visibility) + 8 * place.stage, place.parity ^ 1U, error,
                   WaitSite::empty_visibility);
      const std::uint32_t destination =
          shared + offsetof(Shared, visibility) + 8 * (place.stage * 128 * C.consumers + half * 64);
      const std::int64_t first_column = columns + static_cast<std::int64_t>(entry[0]) * C.unit();
      const std::int32_t first_row =
          row_tile * C.mask_rows() + half_start(0, static_cast<std::int32_t>(half), C.packed_heads);
      generate_half<C, 0>(p, destination, first_column, first_row, classes);
      generate_half<C, 1>(p, destination, first_column, first_row, classes);
      __syncwarp();
      if (C.every_lane_arrives || ptx::lane_index() == 0) {
        ptx::mbarrier_arrive(shared + offsetof(Shared, full_visibility) + 8 * place.stage);
      }
      place.advance();
    }
    blocks -= entries;
    __syncwarp();
    if (C.every_lane_arrives || ptx::lane_index() == 0) {
      ptx::mbarrier_arrive(shared + offsetof(Shared, empty_queue) + 8 * slot.stage);
    }
    slot.advance();
  }
}

}  // namespace flashmask::sm90::forward_pass
