#include "sm90/backward/launch.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "sm90/backward/config.hpp"
#include "sm90/backward/convert.cuh"
#include "sm90/backward/instances.hpp"
#include "sm90/backward/prepare.cuh"
#include "sm90/backward/shared_memory.hpp"
#include "sm90/backward/split.hpp"
#include "sm90/cuda_check.hpp"
#include "sm90/layout/tensor_map.hpp"

namespace flashmask::sm90::backward_pass {
namespace {

constexpr double log2_e = 1.4426950408889634;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int32_t tile_head_dim(const AttentionShape& shape) {
  return shape.head_dim <= 64 ? 64 : 128;
}

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
          .column_blocks = narrow(ceil_div(s.columns, block_columns))};
}

StridedTensor strided(const TensorView& view) {
  return {static_cast<std::uint16_t*>(const_cast<void*>(view.data)), view.strides[0], view.strides[1], view.strides[2]};
}

LaunchMain* main_kernel_of(const BackwardCall& call) {
  const std::int32_t head_dim = tile_head_dim(call.shape);
  const bool bf16 = call.q.dtype == DType::bf16;
  const bool deterministic = call.deterministic;
  if (call.candidate != nullptr) {
    const BackwardConfig& c = call.candidate->config;
    core::check(c.head_dim == head_dim && c.bf16 == bf16 && c.accumulate_dq != deterministic,
                "candidate {} is for head_dim {} and bf16 {}, not deterministic; the call has {}, {} and {}",
                call.candidate->name, c.head_dim, c.bf16, head_dim, bf16, deterministic);
    return call.candidate->launch_main;
  }
  if (head_dim == 128) {
    if (deterministic) return bf16 ? launch_d128_bf16_deterministic : launch_d128_f16_deterministic;
    return bf16 ? launch_d128_bf16 : launch_d128_f16;
  }
  if (deterministic) return bf16 ? launch_d64_bf16_deterministic : launch_d64_f16_deterministic;
  return bf16 ? launch_d64_bf16 : launch_d64_f16;
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

bool splits_groups(const BackwardCall& call) {
  return call.candidate != nullptr && call.candidate->config.split_groups;
}

/// In how many parts the groups of the call are split.
std::int32_t parts_of_call(const BackwardCall& call) {
  if (!splits_groups(call)) return 1;
  const AttentionShape& s = call.shape;
  const auto group = static_cast<std::int32_t>(s.query_heads / s.kv_heads);
  if (call.parts > 0) {
    core::check(group % call.parts == 0, "parts ({}) must divide the {} query heads of a group", call.parts, group);
    return call.parts;
  }
  return parts_of(s.batch * s.kv_heads * ceil_div(s.columns, block_columns), group, multiprocessors());
}

/// How the last blocks of the call are cut.
Tail tail_of_call(const BackwardCall& call) {
  const AttentionShape& s = call.shape;
  const auto blocks = static_cast<std::int32_t>(s.batch * s.kv_heads * ceil_div(s.columns, block_columns));
  const bool cut = call.candidate != nullptr && call.candidate->config.split_tail;
  return cut ? best_tail(blocks, multiprocessors()) : Tail{blocks, 1};
}

/// How work_block() deals out the column blocks.
struct Dealing {
  std::int32_t section_heads, phases;
};

/// Many blocks a multiprocessor: sections of heads whose Q, dO and float32 dQ stay in the L2 cache, in two phases of
/// falling cost (3% on causal masks, nothing lost on others). Few blocks, as with grouped heads: heaviest first over
/// all heads, because the last heavy block decides (causal 64:8 at 8192: 419 -> 455 TFLOP/s).
Dealing default_dealing(const Extents& e, std::int32_t processors) {
  constexpr std::int64_t section_bytes = std::int64_t{16} << 20;
  const std::int64_t heads = std::int64_t{e.batch} * e.kv_heads;
  if (heads * e.column_blocks < std::int64_t{16} * processors) return {static_cast<std::int32_t>(heads), 1};
  const std::int64_t bytes_a_head = std::int64_t{8} * e.rows * e.head_dim * e.group();
  return {static_cast<std::int32_t>(std::clamp<std::int64_t>(section_bytes / bytes_a_head, 1, heads)), 2};
}

PrepareParameters prepare_parameters(const BackwardCall& call, const Extents& e, void* workspace,
                                     const WorkspaceLayout& layout) {
  return {.extents = e,
          .map = call.map,
          .signal = call.signal,
          .out = strided(call.out),
          .dout = strided(call.dout),
          .dk = strided(call.dk),
          .dv = strided(call.dv),
          .lse = call.lse,
          .bf16 = call.q.dtype == DType::bf16,
          .tile_head_dim = tile_head_dim(call.shape),
          .stats = at<float>(workspace, layout.stats),
          .dq_sum = call.deterministic ? nullptr : at<float>(workspace, layout.dq_sum),
          .intervals = at<int4>(workspace, layout.intervals),
          .counters = at<std::uint32_t>(workspace, layout.counters)};
}

/// `e` are the extents that the main kernel sees: with split groups, a KV head a part.
MainParameters main_parameters(const BackwardCall& call, const Extents& e, std::int32_t processors, void* workspace,
                               const WorkspaceLayout& layout) {
  const AttentionShape& s = call.shape;
  MainParameters p{};
  const layout::TileCopy q =
      layout::encode_tile_copy("q", call.q, s.batch, s.rows, s.query_heads, s.head_dim, block_rows);
  p.q = q.map;
  p.copies = q.copies;
  p.k = layout::encode_tile_copy("k", call.k, s.batch, s.columns, s.kv_heads, s.head_dim, block_columns).map;
  p.v = layout::encode_tile_copy("v", call.v, s.batch, s.columns, s.kv_heads, s.head_dim, block_columns).map;
  p.dout = layout::encode_tile_copy("dout", call.dout, s.batch, s.rows, s.query_heads, s.head_dim, block_rows).map;
  p.extents = e;
  // A caller's order is kept over all heads.
  const Dealing dealing = call.order != nullptr ? Dealing{e.batch * e.kv_heads, 1} : default_dealing(e, processors);
  p.lists = {.runs = call.map.column_runs,
             .begin = call.map.column_run_begin,
             .count = call.map.column_run_count,
             .order = call.order != nullptr ? call.order : call.map.column_order,
             .section_heads = call.section_heads > 0 ? call.section_heads : dealing.section_heads,
             .phases = call.phases > 0 ? call.phases : dealing.phases};
  if (!splits_groups(call)) p.signal = call.signal;  // dK and dV are complete in combine_kernel then
  p.stats = at<float>(workspace, layout.stats);
  p.intervals = at<int4>(workspace, layout.intervals);
  p.dq_sum = at<float>(workspace, layout.dq_sum);
  p.dk = strided(call.dk);
  p.dv = strided(call.dv);
  p.scale = call.scale;
  p.scale_log2 = static_cast<float>(call.scale * log2_e);
  p.counter = at<std::uint32_t>(workspace, layout.counters);
  p.error = p.counter + 1;
  p.front = at<std::uint32_t>(workspace, layout.front);
  p.part_sums = at<float>(workspace, layout.part_sums);
  p.parts = e.kv_heads / static_cast<std::int32_t>(s.kv_heads);
  p.tail = tail_of_call(call);
  return p;
}

CombineParameters combine_parameters(const BackwardCall& call, const MainParameters& main) {
  return {.extents = main.extents,
          .lists = main.lists,
          .signal = call.signal,
          .part_sums = main.part_sums,
          .parts = main.parts,
          .tail = main.tail,
          .dk = main.dk,
          .dv = main.dv,
          .scale = call.scale};
}

RowParameters row_parameters(const BackwardCall& call, const MainParameters& main) {
  return {.q = main.q,
          .k = main.k,
          .v = main.v,
          .dout = main.dout,
          .copies = main.copies,
          .extents = main.extents,
          .runs = call.map.row_runs,
          .run_begin = call.map.row_run_begin,
          .run_count = call.map.row_run_count,
          .order = call.map.row_order,
          .stats = main.stats,
          .intervals = main.intervals,
          .dq = strided(call.dq),
          .scale = call.scale,
          .scale_log2 = main.scale_log2,
          .error = main.error};
}

}  // namespace

WorkspaceLayout workspace_layout(const AttentionShape& shape, std::int64_t mask_matrices, bool deterministic) {
  const auto aligned = [](std::int64_t bytes) { return static_cast<std::size_t>(ceil_div(bytes, 256) * 256); };
  const std::int64_t row_tiles = shape.batch * shape.query_heads * ceil_div(shape.rows, block_rows);
  const std::int64_t columns = mask_matrices * ceil_div(shape.columns, block_columns) * block_columns;
  WorkspaceLayout layout{};
  layout.counters = 0;
  layout.stats = aligned(counter_words * 4);
  layout.intervals = layout.stats + aligned(row_tiles * stats_floats * 4);
  layout.dq_sum = layout.intervals + aligned(columns * 16);
  layout.bytes = layout.dq_sum;
  if (!deterministic) layout.bytes += aligned(row_tiles * block_rows * tile_head_dim(shape) * 4);
  layout.front = layout.part_sums = layout.bytes;
  return layout;
}

WorkspaceLayout workspace_layout(const BackwardCall& call) {
  WorkspaceLayout layout =
      workspace_layout(call.shape, std::int64_t{call.map.batch} * call.map.heads, call.deterministic);
  if (call.candidate == nullptr) return layout;
  const Extents e = split_extents(extents_of(call.shape, call.map), parts_of_call(call));
  if (call.candidate->config.shared_front) {
    layout.bytes += static_cast<std::size_t>(ceil_div(std::int64_t{e.batch} * e.kv_heads * 4, 256) * 256);
  }
  layout.part_sums = layout.bytes;
  if (splits_groups(call)) layout.bytes += static_cast<std::size_t>(2 * 4 * part_floats(e, tile_head_dim(call.shape)));
  if (call.candidate->config.split_tail) {
    layout.bytes += static_cast<std::size_t>(
        4 * tail_floats(tail_of_call(call), work_items(extents_of(call.shape, call.map)), tile_head_dim(call.shape)));
  }
  return layout;
}

void queue_backward(const BackwardCall& call, void* workspace, cudaStream_t stream) {
  const AttentionShape& s = call.shape;
  const Extents e = extents_of(s, call.map);
  const WorkspaceLayout layout = workspace_layout(call);
  const bool bf16 = call.q.dtype == DType::bf16;
  const std::int32_t head_dim = tile_head_dim(s);
  LaunchPrepare* const prepare = call.candidate != nullptr ? call.candidate->prepare : launch_prepare;
  LaunchConvert* const convert = call.candidate != nullptr ? call.candidate->convert : launch_convert;
  check_cuda(prepare(prepare_parameters(call, e, workspace, layout), stream), "launch of prepare_kernel");
  const std::int64_t items = std::int64_t{e.batch} * e.kv_heads * e.column_blocks;
  const bool any = items > 0 && s.rows > 0;
  if (any) {
    const std::int32_t processors = multiprocessors();
    const MainParameters p =
        main_parameters(call, split_extents(e, parts_of_call(call)), processors, workspace, layout);
    const std::int32_t work = std::max(work_items(p.extents), p.tail.items(static_cast<std::int32_t>(items)));
    check_cuda(main_kernel_of(call)(p, std::min(processors, work), stream), "launch of main_kernel");
    if (call.candidate != nullptr && call.candidate->launch_combine != nullptr) {
      check_cuda(call.candidate->launch_combine(combine_parameters(call, p), stream), "launch of combine_kernel");
    }
    if (call.deterministic) {
      check_cuda(row_kernel_of(head_dim, bf16)(row_parameters(call, p), stream), "launch of row_kernel");
      return;
    }
  }
  check_cuda(convert({.extents = e,
                      .bf16 = bf16,
                      .tile_head_dim = head_dim,
                      .scale = call.scale,
                      .dq_sum = any ? at<float>(workspace, layout.dq_sum) : nullptr,
                      .dq = strided(call.dq)},
                     stream),
             "launch of convert_kernel");
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
