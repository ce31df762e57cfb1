#include "sm90/backward/launch.hpp"

#include <algorithm>
#include <utility>

#include "core/check.hpp"
#include "sm90/backward/config.hpp"
#include "sm90/backward/convert.cuh"
#include "sm90/backward/dealing.hpp"
#include "sm90/backward/instances.hpp"
#include "sm90/backward/prepare.cuh"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/split.hpp"
#include "sm90/cuda_check.hpp"
#include "sm90/layout/tensor_map.hpp"
#include "tile/row_tiling.hpp"

namespace flashmask::sm90::backward_pass {
namespace {

using tile::ceil_div;

constexpr double log2_e = 1.4426950408889634;

static_assert(counter_words * sizeof(std::uint32_t) == counter_bytes && stats_floats * sizeof(float) == stats_bytes);

Extents extents_of(const AttentionShape& s, const TileMapView& map) {
  const auto narrow = [](std::int64_t x) { return static_cast<std::int32_t>(x); };
  return {.batch = narrow(s.batch),
          .rows = narrow(s.rows),
          .columns = narrow(s.columns),
          .query_heads = narrow(s.query_heads),
          .kv_heads = narrow(s.kv_heads),
          .head_dim = narrow(s.head_dim),
          .mask_batch = map.batch,
          .mask_heads = map.heads,
          .row_tiles = narrow(ceil_div(s.rows, block_rows)),
          .column_blocks = narrow(ceil_div(s.columns, map.block_n)),
          .work_columns = map.block_n};
}

StridedTensor strided(const TensorView& view) {
  return {static_cast<std::uint16_t*>(const_cast<void*>(view.data)), view.strides[0], view.strides[1], view.strides[2]};
}

LaunchMain* main_kernel_of(std::int32_t head_dim, bool bf16, bool deterministic, bool paired) {
  if (head_dim == 128) {
    if (paired) return bf16 ? launch_d128_bf16_paired : launch_d128_f16_paired;
    if (deterministic) return bf16 ? launch_d128_bf16_deterministic : launch_d128_f16_deterministic;
    return bf16 ? launch_d128_bf16 : launch_d128_f16;
  }
  if (paired) return bf16 ? launch_d64_bf16_paired : launch_d64_f16_paired;
  if (deterministic) return bf16 ? launch_d64_bf16_deterministic : launch_d64_f16_deterministic;
  return bf16 ? launch_d64_bf16 : launch_d64_f16;
}

LaunchCombine* combine_kernel_of(std::int32_t head_dim, bool bf16) {
  if (head_dim == 128) return bf16 ? launch_combine_d128_bf16 : launch_combine_d128_f16;
  return bf16 ? launch_combine_d64_bf16 : launch_combine_d64_f16;
}

LaunchRows* row_kernel_of(std::int32_t head_dim, bool bf16) {
  if (head_dim == 128) return bf16 ? launch_rows_d128_bf16 : launch_rows_d128_f16;
  return bf16 ? launch_rows_d64_bf16 : launch_rows_d64_f16;
}

std::int32_t multiprocessors() {
  int device = 0;
  int count = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return count;
}

template <typename T>
T* at(void* workspace, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(workspace) + offset);
}

/// A call that reports its chunks as they are complete is not split: they would all be complete at the end.
std::int32_t parts_of_call(const BackwardCall& call) {
  const bool whole = call.parts == 0 && call.signal.done != nullptr;
  return parts_of_shape(call.shape, whole ? 1 : call.parts);
}

/// Whether the sweeps of a head's CTAs stay together (sweep.hpp): where what a KV head's group sweeps over is more than
/// the L2 cache keeps. Never in deterministic mode: the order of sums would change from run to run.
bool shares_front(const BackwardCall& call) {
  if (call.deterministic || call.shared_front < 0) return false;
  const AttentionShape& s = call.shape;
  return call.shared_front > 0 || sweep_exceeds_cache(s.rows, s.query_heads / s.kv_heads, tile_head_dim(s));
}

RowTensors row_tensors(const BackwardCall& call, void* workspace, const WorkspaceLayout& layout) {
  return {.out = strided(call.out),
          .dout = strided(call.dout),
          .dq = strided(call.dq),
          .lse = call.lse,
          .stats = at<float>(workspace, layout.stats),
          .dq_sum = call.deterministic ? nullptr : at<float>(workspace, layout.dq_sum)};
}

PrepareParameters prepare_parameters(const BackwardCall& call, const Extents& e, const MainParameters& main,
                                     void* workspace, const WorkspaceLayout& layout) {
  return {.extents = e,
          .map = call.map,
          .signal = call.signal,
          .rows = main.rows,
          .dk = strided(call.dk),
          .dv = strided(call.dv),
          .scale = call.scale,
          .bf16 = call.q.dtype == DType::bf16,
          .tile_head_dim = tile_head_dim(call.shape),
          .intervals = at<int4>(workspace, layout.intervals),
          .counters = at<std::uint32_t>(workspace, layout.counters),
          .front = main.front,
          .fronts = main.front == nullptr ? 0 : main.extents.batch * main.extents.kv_heads,
          .lists = main.lists};
}

/// The tile copies. Not for a call without rows or columns: a tensor map has no empty extents.
void encode_operands(const BackwardCall& call, MainParameters& p) {
  const AttentionShape& s = call.shape;
  const bool paired = call.map.block_n > block_columns;
  const layout::Halves halves = paired ? layout::Halves::apart : layout::Halves::together;
  const auto share_rows = static_cast<std::uint32_t>(
      BackwardConfig{.head_dim = tile_head_dim(s), .bf16 = true, .accumulate_dq = true, .paired = paired}.share_rows());
  const auto copy_of_rows = [&](const char* name, const TensorView& tensor) {
    return layout::encode_tile_copy(name, tensor, s.batch, s.rows, s.query_heads, s.head_dim, share_rows, halves);
  };
  const auto copy_of_columns = [&](const char* name, const TensorView& tensor) {
    return layout::encode_tile_copy(name, tensor, s.batch, s.columns, s.kv_heads, s.head_dim, block_columns, halves);
  };
  const layout::TileCopy q = copy_of_rows("q", call.q);
  p.q = q.map;
  p.copies = q.copies;
  p.k = copy_of_columns("k", call.k).map;
  p.v = copy_of_columns("v", call.v).map;
  p.dout = copy_of_rows("dout", call.dout).map;
}

/// All but the tile copies. `e` are the extents that the main kernel sees: with split groups, a KV head a part.
MainParameters main_parameters(const BackwardCall& call, const Extents& e, std::int32_t workers, void* workspace,
                               const WorkspaceLayout& layout) {
  const AttentionShape& s = call.shape;
  MainParameters p{};
  p.extents = e;
  const Dealing dealing = call.order != nullptr ? given_dealing(e) : default_dealing(e, workers);
  const std::int64_t blocks = std::int64_t{e.mask_batch} * e.mask_heads * e.column_blocks;
  const std::int32_t light_percent = call.light_percent >= 0 ? call.light_percent : dealing.light_percent;
  p.lists = {
      .runs = call.map.column_runs,
      .begin = call.map.column_run_begin,
      .count = call.map.column_run_count,
      .order = call.order != nullptr ? call.order : call.map.column_order,
      .section_heads = call.section_heads > 0 ? std::min(call.section_heads, sharing_heads(e)) : dealing.section_heads,
      .light_blocks = static_cast<std::int32_t>(blocks * light_percent / 100)};
  p.parts = e.kv_heads / static_cast<std::int32_t>(s.kv_heads);
  if (p.parts > 1) {
    p.part_sums = at<float>(workspace, layout.part_sums);
  } else {
    p.signal = call.signal;  // otherwise dK and dV are complete in combine_kernel
  }
  p.rows = row_tensors(call, workspace, layout);
  p.intervals = at<int4>(workspace, layout.intervals);
  p.dk = strided(call.dk);
  p.dv = strided(call.dv);
  p.scale = call.scale;
  p.scale_log2 = static_cast<float>(call.scale * log2_e);
  p.counter = at<std::uint32_t>(workspace, layout.counters);
  p.error = p.counter + 1;
  p.waiting = p.counter + waiting_word;
  if (shares_front(call)) p.front = at<std::uint32_t>(workspace, layout.front);
  return p;
}

CombineParameters combine_parameters(const BackwardCall& call, const MainParameters& main) {
  return {.extents = main.extents,
          .lists = main.lists,
          .signal = call.signal,
          .part_sums = main.part_sums,
          .parts = main.parts,
          .dk = main.dk,
          .dv = main.dv,
          .scale = call.scale};
}

RowParameters row_parameters(const BackwardCall& call, const Extents& e, const MainParameters& main) {
  return {.q = main.q,
          .k = main.k,
          .v = main.v,
          .dout = main.dout,
          .copies = main.copies,
          .extents = e,
          .runs = call.map.row_runs,
          .run_begin = call.map.row_run_begin,
          .run_count = call.map.row_run_count,
          .order = call.map.row_order,
          .stats = main.rows.stats,
          .intervals = main.intervals,
          .dq = strided(call.dq),
          .scale = call.scale,
          .scale_log2 = main.scale_log2,
          .error = main.error};
}

}  // namespace

void queue_backward(const BackwardCall& call, void* workspace, cudaStream_t stream) {
  const AttentionShape& s = call.shape;
  const Extents e = extents_of(s, call.map);
  const std::int32_t ctas = call.map.block_n / block_columns;  // of a work block
  const std::int32_t parts = parts_of_call(call);
  const WorkspaceLayout layout =
      workspace_layout(s, std::int64_t{call.map.batch} * call.map.heads, call.deterministic, parts);
  const bool bf16 = call.q.dtype == DType::bf16;
  const std::int32_t head_dim = tile_head_dim(s);
  core::check(call.map.block_n == block_columns || call.map.block_n == 2 * block_columns,
              "the tile map has {} columns a block, the backward takes {} or {}", call.map.block_n, block_columns,
              2 * block_columns);
  core::check(ctas == 1 || !call.deterministic, "a map of {} columns a block is not for deterministic calls",
              call.map.block_n);
  const std::int32_t workers = multiprocessors() / ctas;
  MainParameters p = main_parameters(call, split_extents(e, parts), workers, workspace, layout);
  check_cuda(launch_prepare(prepare_parameters(call, e, p, workspace, layout), stream), "launch of prepare_kernel");
  const bool any = work_items(p.extents) > 0 && s.rows > 0;
  if (any) {
    encode_operands(call, p);
    const std::int32_t blocks = ctas * std::min(workers, work_items(p.extents));
    LaunchMain* const main =
        call.main_kernel != nullptr ? call.main_kernel : main_kernel_of(head_dim, bf16, call.deterministic, ctas == 2);
    check_cuda(main(p, blocks, stream), "launch of main_kernel");
    if (p.parts > 1) {
      check_cuda(combine_kernel_of(head_dim, bf16)(combine_parameters(call, p), stream), "launch of combine_kernel");
    }
    if (call.deterministic) {
      LaunchRows* const rows = call.row_kernel != nullptr ? call.row_kernel : row_kernel_of(head_dim, bf16);
      check_cuda(rows(row_parameters(call, e, p), stream), "launch of row_kernel");
      return;
    }
  }
  check_cuda(launch_convert({.extents = e,
                             .bf16 = bf16,
                             .tile_head_dim = head_dim,
                             .scale = call.scale,
                             .dq_sum = any ? p.rows.dq_sum : nullptr,
                             .dq = strided(call.dq)},
                            stream),
             "launch of convert_kernel");
}

void load_kernels() {
  const auto check = [](cudaError_t status) { check_cuda(status, "cudaFuncGetAttributes of a backward kernel"); };
  check(launch_prepare({}, nullptr));
  for (const std::int32_t head_dim : {64, 128}) {
    for (const bool bf16 : {false, true}) {
      for (const auto& [deterministic, paired] : {std::pair{false, false}, {true, false}, {false, true}})
        check(main_kernel_of(head_dim, bf16, deterministic, paired)({}, 0, nullptr));
      CombineParameters combine{};
      combine.parts = 1;
      check(combine_kernel_of(head_dim, bf16)(combine, nullptr));
      check(row_kernel_of(head_dim, bf16)({}, nullptr));
      ConvertParameters convert{};
      convert.bf16 = bf16, convert.tile_head_dim = head_dim;
      check(launch_convert(convert, nullptr));
    }
  }
}

std::uint32_t read_error(const void* workspace, cudaStream_t stream) {
  std::uint32_t word = 0;
  check_cuda(cudaMemcpyAsync(&word, static_cast<const std::uint32_t*>(workspace) + 1, sizeof(word),
                             cudaMemcpyDeviceToHost, stream),
             "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return word;
}

std::uint32_t complete_count(const AttentionShape& shape, std::int32_t chunk_columns, std::int64_t chunk) {
  const std::int64_t first = chunk * chunk_columns;
  const std::int64_t end = std::min<std::int64_t>(first + chunk_columns, shape.columns);
  if (first >= end) return 0;
  const std::int64_t blocks = (end - 1) / block_columns - first / block_columns + 1;
  return static_cast<std::uint32_t>(shape.batch * shape.kv_heads * blocks * column_warps);
}

}  // namespace flashmask::sm90::backward_pass
