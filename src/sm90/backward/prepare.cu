#include "sm90/backward/prepare_kernel.cuh"
#include "sm90/load_kernels.hpp"

namespace flashmask::sm90::backward_pass {

cudaError_t launch_prepare(const PrepareParameters& p, cudaStream_t stream) {
  const Extents& e = p.extents;
  const std::int64_t row_blocks = static_cast<std::int64_t>(e.batch) * e.query_heads * e.row_tiles;
  const std::int64_t column_items =
      std::max(std::int64_t{e.batch} * e.kv_heads, std::int64_t{e.mask_batch} * e.mask_heads) * e.column_blocks;
  const std::int64_t blocks = row_blocks + std::max<std::int64_t>(column_items, p.fronts);
  if (blocks == 0) return load_kernel(prepare_kernel);
  prepare_kernel<<<static_cast<unsigned>(blocks), prepare_threads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace flashmask::sm90::backward_pass
