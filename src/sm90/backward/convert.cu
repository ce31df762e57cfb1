#include "sm90/backward/convert_kernel.cuh"
#include "sm90/load_kernels.hpp"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_convert(const ConvertParameters& p, cudaStream_t stream) {
  const std::int64_t tiles = static_cast<std::int64_t>(p.extents.batch) * p.extents.query_heads * p.extents.row_tiles;
  const auto launch = [&](auto* kernel) {
    if (tiles == 0) return load_kernel(kernel);
    kernel<<<static_cast<unsigned>(tiles), warpgroup_threads, 0, stream>>>(p);
    return cudaGetLastError();
  };
  if (p.tile_head_dim == 128) return p.bf16 ? launch(convert_kernel<true, 128>) : launch(convert_kernel<false, 128>);
  return p.bf16 ? launch(convert_kernel<true, 64>) : launch(convert_kernel<false, 64>);
}

}  // namespace flashmask::sm90::backward_pass
