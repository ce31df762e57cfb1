// Describe, configure, launch: arguments -> ForwardConfig and ForwardParameters -> kernel.
#include <algorithm>
#include <cmath>

#include "core/check.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/cuda_check.hpp"
#include "sm90/device/query.hpp"
#include "sm90/forward/launch.hpp"
#include "sm90/forward/section.hpp"
#include "sm90/layout/tensor_map.hpp"
#include "sm90/sync/wait_site.hpp"
#include "sm90/validate.hpp"

namespace flashmask::sm90 {
namespace {

using forward_pass::Element;
using forward_pass::ForwardConfig;
using forward_pass::ForwardParameters;
using forward_pass::Workspace;

ForwardConfig configure(const ForwardArguments& a) {
  return forward_pass::config_of({a.map->block_m, a.map->block_n}, a.shape.head_dim,
                                 a.q.dtype == DType::bf16 ? Element::bf16 : Element::f16, a.arrival.has_value());
}

forward_pass::ChunkProgress describe_arrival(const ChunkArrival& arrival, const ForwardConfig& config) {
  // The blocks wholly inside the local columns.
  const std::int64_t first = (arrival.first_local_column + config.unit() - 1) / config.unit();
  const std::int64_t last = (arrival.end_local_column - config.block_n) / config.unit();
  const std::int64_t end = std::max(first, arrival.end_local_column < config.block_n ? 0 : last + 1);
  forward_pass::ChunkProgress progress{};
  progress.words = arrival.words;
  progress.epoch = arrival.epoch;
  progress.chunk_columns = static_cast<std::int32_t>(arrival.chunk_columns);
  progress.deadline_milliseconds = arrival.deadline_milliseconds;
  progress.first_local = static_cast<std::int32_t>(first);
  progress.end_local = static_cast<std::int32_t>(end);
  return progress;
}

/// How one copy moves `accumulator_rows` rows of q or out.
layout::TileCopy row_copy(const char* name, TensorView tensor, const AttentionShape& s, std::int32_t accumulator_rows,
                          std::int32_t packed_heads) {
  const std::int32_t heads = std::min(packed_heads, accumulator_rows);
  const auto rows = static_cast<std::uint32_t>(accumulator_rows / heads);
  if (heads == 1) return layout::encode_tile_copy(name, tensor, s.batch, s.rows, s.query_heads, s.head_dim, rows);
  return layout::encode_packed_copy(name, tensor, s.batch, s.rows, s.query_heads, s.head_dim, rows,
                                    static_cast<std::uint32_t>(heads));
}

ForwardParameters describe(const ForwardArguments& a, const ForwardConfig& config) {
  const AttentionShape& s = a.shape;
  ForwardParameters p{};
  const auto block_n = static_cast<std::uint32_t>(config.block_n);
  const layout::TileCopy q = row_copy("q", a.q, s, config.block_m(), config.packed_heads);
  p.q = q.map;
  p.copies = q.copies;
  p.out = row_copy("out", a.out, s, 16, config.packed_heads).map;
  p.k = p.v = p.q;  // without columns no block is ever loaded
  if (s.columns > 0) {
    p.k = layout::encode_tile_copy("k", a.k, s.batch, s.columns, s.kv_heads, s.head_dim, block_n).map;
    p.v = layout::encode_tile_copy("v", a.v, s.batch, s.columns, s.kv_heads, s.head_dim, block_n).map;
  }
  p.map = *a.map;
  if (a.arrival) p.progress = describe_arrival(*a.arrival, config);
  p.lse = a.lse;
  p.workspace = static_cast<Workspace*>(a.workspace);
  p.scale = a.scale.value_or(1.0F / std::sqrt(static_cast<float>(s.head_dim)));
  p.scale_log2 = p.scale * 1.44269504088896341F;
  p.rows = static_cast<std::int32_t>(s.rows);
  p.query_heads = static_cast<std::int32_t>(s.query_heads / config.packed_heads);
  p.query_heads_per_kv_head = static_cast<std::int32_t>(s.query_heads / s.kv_heads / config.packed_heads);
  p.query_heads_per_mask_head = static_cast<std::int32_t>(s.query_heads / a.map->heads / config.packed_heads);
  p.units = static_cast<std::int32_t>(s.batch) * p.query_heads;
  p.units_a_section = forward_pass::units_a_section(s, config.packed_heads);
  p.tickets = p.units * a.map->row_tiles;
  return p;
}

forward_pass::Launch* instance(const ForwardConfig& c) {
  using namespace forward_pass;
  // [16-bit type][chunk waits]
  static constexpr Launch* d64[2][2] = {{launch_d64_f16, launch_d64_f16_chunks},
                                        {launch_d64_bf16, launch_d64_bf16_chunks}};
  static constexpr Launch* d128[2][2] = {{launch_d128_f16, launch_d128_f16_chunks},
                                         {launch_d128_bf16, launch_d128_bf16_chunks}};
  static constexpr Launch* d128_n64[2][2] = {{launch_d128_f16_n64, launch_d128_f16_n64_chunks},
                                             {launch_d128_bf16_n64, launch_d128_bf16_n64_chunks}};
  static constexpr Launch* d64_packed[2][2] = {{launch_d64_f16_packed, launch_d64_f16_packed_chunks},
                                               {launch_d64_bf16_packed, launch_d64_bf16_packed_chunks}};
  static constexpr Launch* d128_packed[2][2] = {{launch_d128_f16_packed, launch_d128_f16_packed_chunks},
                                                {launch_d128_bf16_packed, launch_d128_bf16_packed_chunks}};
  const bool packed = c.packed_heads > 1;
  const auto& narrow_heads = packed ? d64_packed : d64;
  const auto& wide_heads = packed ? d128_packed : c.block_n == 64 ? d128_n64 : d128;
  return (c.head_dim == 64 ? narrow_heads : wide_heads)[c.element == Element::bf16 ? 1 : 0][c.waits_for_chunks ? 1 : 0];
}

std::int32_t multiprocessors() {
  int device = 0, count = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return count;
}

}  // namespace

void forward_pass::load_kernels() {
  for (const std::int64_t head_dim : {64, 128}) {
    for (const TileShape tile : forward_tiles({1, 1, 1, heads_a_pack, 1, head_dim}, 1)) {
      for (const Element element : {Element::f16, Element::bf16}) {
        for (const bool waits : {false, true}) {
          check_cuda(instance(config_of(tile, head_dim, element, waits))({}, 0, nullptr),
                     "cudaFuncGetAttributes of a forward kernel");
        }
      }
    }
  }
}

std::size_t forward_workspace_bytes() {
  return sizeof(Workspace);
}

void prepare_workspace(void* workspace, void* stream) {
  check_forward_memory(workspace);
  require_hopper();
  check_cuda(cudaMemsetAsync(workspace, 0, sizeof(Workspace), static_cast<cudaStream_t>(stream)),
             "cudaMemsetAsync of the forward workspace");
}

void check_workspace(const void* workspace, void* stream) {
  check_forward_memory(workspace);
  require_hopper();
  Workspace copy{};
  const auto s = static_cast<cudaStream_t>(stream);
  check_cuda(cudaMemcpyAsync(&copy, workspace, sizeof(copy), cudaMemcpyDeviceToHost, s),
             "cudaMemcpyAsync of the workspace");
  check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
  if (copy.error != 0) {
    core::fail(ErrorCode::timeout, "an sm90 kernel gave up waiting: {}; call prepare_workspace before using it again",
               describe_wait(copy.error));
  }
}

void forward_pass::launch(const ForwardArguments& arguments, const ForwardConfig& config, Launch* kernel) {
  if (arguments.shape.batch == 0 || arguments.shape.rows == 0) return;
  const ForwardParameters p = describe(arguments, config);
  const std::int32_t ctas = arguments.grid > 0 ? arguments.grid : multiprocessors();
  check_cuda(kernel(p, std::min(ctas, p.tickets), static_cast<cudaStream_t>(arguments.stream)),
             "launch of the forward kernel");
}

void forward(const ForwardArguments& arguments) {
  validate(arguments);
  if (arguments.shape.batch == 0 || arguments.shape.rows == 0) return;
  require_hopper();
  const ForwardConfig config = configure(arguments);
  forward_pass::launch(arguments, config, instance(config));
}

void forward(ForwardArguments arguments, DeviceMask& mask, const MaskView& vectors) {
  arguments.map = &mask.view();
  validate(arguments);  // before the refill is queued
  mask.refill(vectors, arguments.stream);
  forward(arguments);
}

}  // namespace flashmask::sm90
