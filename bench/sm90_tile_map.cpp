// Time to build a tile map on the device, for the twelve benchmark masks: one JSON object a line.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "flashmask/builders.hpp"
#include "format/workload.hpp"
#include "sm90/device/query.hpp"
#include "sm90/tile_map/device_map.hpp"

namespace {

using namespace flashmask;

void require(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(fmt::format("{}: {}", call, cudaGetErrorString(status)));
}

std::int32_t* upload(std::span<const std::int32_t> from) {
  void* to = nullptr;
  require(cudaMalloc(&to, std::max<std::size_t>(from.size_bytes(), 4)), "cudaMalloc");
  require(cudaMemcpy(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  return static_cast<std::int32_t*>(to);
}

/// Median microseconds of one of `launches` queued calls, over 9 batches.
template <typename Call>
double median_us(cudaStream_t stream, int launches, Call&& call) {
  cudaEvent_t begin, end;
  require(cudaEventCreate(&begin), "cudaEventCreate"), require(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> ms;
  for (int batch = 0; batch < 10; ++batch) {
    require(cudaEventRecord(begin, stream), "cudaEventRecord");
    for (int n = 0; n < launches; ++n) call();
    require(cudaEventRecord(end, stream), "cudaEventRecord");
    require(cudaEventSynchronize(end), "cudaEventSynchronize");
    ms.emplace_back();
    require(cudaEventElapsedTime(&ms.back(), begin, end), "cudaEventElapsedTime");
  }
  ms.erase(ms.begin());  // the first batch warms up
  std::sort(ms.begin(), ms.end());
  cudaEventDestroy(begin), cudaEventDestroy(end);
  return 1000.0 * ms[ms.size() / 2] / launches;
}

void measure(const std::string& name, std::int64_t rows, std::int64_t mask_heads, TileShape tile) {
  masks::BuilderOptions options = format::builder_options(format::generate(fmt::format("pack:{}:0", rows)));
  options.mask_heads = mask_heads;
  const ColumnMask mask = masks::build(name, options);
  const sm90::DeviceVectors vectors{upload(mask.lts()), upload(mask.lte()), upload(mask.uts()), upload(mask.ute())};
  sm90::DeviceTileMap map(mask.shape(), tile);
  cudaStream_t stream;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  map.refill(vectors, stream);
  const sm90::MapCounts counts = map.read_counts(stream);
  const double queued = median_us(stream, 50, [&] { map.refill(vectors, stream); });
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  map.refill(vectors, stream);
  require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  require(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  const double replayed =
      median_us(stream, 50, [&] { require(cudaGraphLaunch(executable, stream), "cudaGraphLaunch"); });
  fmt::print(
      "{{\"bench\": \"tile_map\", \"mask\": \"{}\", \"rows\": {}, \"mask_heads\": {}, \"block_m\": {}, \"block_n\": "
      "{}, "
      "\"queued_us\": {:.1f}, \"graph_us\": {:.1f}, \"bytes\": {}, \"runs\": {}, \"blocks\": {}, \"partial_blocks\": "
      "{}, "
      "\"bitmaps\": {}, \"fallback_lists\": {}}}\n",
      name, rows, mask_heads, tile.block_m, tile.block_n, queued, replayed, map.bytes(), counts.runs,
      counts.row_blocks_visited, counts.partial_blocks, counts.bitmap_blocks, counts.fallback_lists);
  cudaGraphExecDestroy(executable), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
  for (const std::int32_t* p : {vectors.lts, vectors.lte, vectors.uts, vectors.ute}) {
    cudaFree(const_cast<std::int32_t*>(p));
  }
}

}  // namespace

int main() {
  try {
    sm90::require_device();
    for (const std::int64_t rows : {8192, 32768, 131072}) {
      for (std::size_t m = 0; m < 12; ++m) measure(std::string(masks::builder_names()[m].name), rows, 1, {192, 80});
    }
    measure("causal_document", 32768, 1, {64, 128});
    measure("random_eviction", 8192, 16, {192, 80});
    measure("causal_document", 32768, 16, {192, 80});
  } catch (const std::exception& error) {
    fmt::print(stderr, "sm90_tile_map: {}\n", error.what());
    return 1;
  }
  return 0;
}
