// Every wgmma form the kernels use, TMA tiles, bulk copies and barriers, against the definition.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "device/device_tensor.hpp"
#include "device/naive_reference.cuh"
#include "sm90/layout/descriptor.hpp"
#include "sm90/layout/fragment.hpp"
#include "sm90/layout/tensor_map.hpp"
#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/bulk_copy.cuh"
#include "sm90/ptx/fence.cuh"
#include "sm90/ptx/matrix.cuh"
#include "sm90/ptx/shared_address.cuh"
#include "sm90/ptx/tensor_copy.cuh"
#include "sm90/ptx/warp.cuh"
#include "sm90/ptx/wgmma.cuh"
#include "sm90/sync/bounded_wait.cuh"

namespace flashmask::device {
namespace {

using sm90::ptx::Major;
using sm90::ptx::Operand;
namespace layout = sm90::layout;
namespace ptx = sm90::ptx;

constexpr int depth = 64;  // contraction: four steps of 16

/// Offset of (i, k) of an operand: K-major tiles have rows i, MN-major tiles rows k.
__device__ std::uint32_t place(Major major, int i, int k, int extent) {
  return major == Major::k ? layout::tile_offset(i, k, extent) : layout::tile_offset(k, i, depth);
}

/// D[64 x N] = A[64 x depth] B[depth x N]; a, b, d row-major in global memory.
template <int N, class T, Operand Kind, Major MajorA, Major MajorB, bool FromRegisters>
__global__ void product(const T* a, const T* b, float* d) {
  __shared__ __align__(1024) unsigned char tile_a[64 * depth * 2];
  __shared__ __align__(1024) unsigned char tile_b[(N + 63) / 64 * 64 * depth * 2];
  for (int x = threadIdx.x; x < 64 * depth; x += 128) {
    *reinterpret_cast<T*>(tile_a + place(MajorA, x / depth, x % depth, 64)) = a[x];
  }
  for (int x = threadIdx.x; x < N * depth; x += 128) {
    *reinterpret_cast<T*>(tile_b + place(MajorB, x % N, x / N, N)) = b[x];
  }
  ptx::fence_proxy_async_shared();
  __syncthreads();
  const std::uint32_t at_a = ptx::shared_address(tile_a), at_b = ptx::shared_address(tile_b);
  const std::uint64_t desc_a =
      MajorA == Major::k ? layout::k_major_descriptor(at_a) : layout::mn_major_descriptor(at_a, depth);
  const std::uint64_t desc_b =
      MajorB == Major::k ? layout::k_major_descriptor(at_b) : layout::mn_major_descriptor(at_b, depth);
  float sum[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) sum[i] = 1e30F;  // must be overwritten by the first step
  std::uint32_t fragment[depth / 16][4];
  if constexpr (FromRegisters) {
#pragma unroll
    for (int k = 0; k < depth / 16; ++k) {
      ptx::ldmatrix_x4(at_a + layout::matrix_x4_offset(threadIdx.x % 32, threadIdx.x / 32 * 16, 16 * k, 64),
                       fragment[k]);
    }
  }
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < depth / 16; ++k) {
    const std::uint64_t step_b = MajorB == Major::k ? layout::k_major_step(k, N) : layout::mn_major_step(k);
    if constexpr (FromRegisters) {
      ptx::wgmma<Kind, MajorB>(sum, fragment[k][0], fragment[k][1], fragment[k][2], fragment[k][3], desc_b + step_b,
                               k > 0);
    } else {
      const std::uint64_t step_a = MajorA == Major::k ? layout::k_major_step(k, 64) : layout::mn_major_step(k);
      ptx::wgmma<Kind, MajorA, MajorB>(sum, desc_a + step_a, desc_b + step_b, k > 0);
    }
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    d[layout::accumulator_row(threadIdx.x, i) * N + layout::accumulator_column(threadIdx.x, i)] = sum[i];
  }
}

template <int N, class T, Operand Kind, Major MajorA, Major MajorB, bool FromRegisters>
void check_product() {
  DeviceTensor<T> a(1, 64, 1, depth), b(1, depth, 1, N);
  fill_normal(a, 5), fill_normal(b, 6);
  DeviceBuffer<float> d(64 * N);
  product<N, T, Kind, MajorA, MajorB, FromRegisters><<<1, 128>>>(a.data(), b.data(), d.data());
  require(cudaDeviceSynchronize(), "product");
  const std::vector<double> x = a.download(), y = b.download();
  const std::vector<float> got = d.download();
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < N; ++j) {
      double want = 0;
      for (int k = 0; k < depth; ++k) want += x[i * depth + k] * y[k * N + j];
      ASSERT_NEAR(got[i * N + j], want, 1e-4)
          << "N " << N << " A major " << static_cast<int>(MajorA) << " B major " << static_cast<int>(MajorB)
          << " registers " << FromRegisters << " at " << i << "," << j;
    }
  }
}

template <int N, class T, Operand Kind>
void check_forms() {
  check_product<N, T, Kind, Major::k, Major::k, false>();
  check_product<N, T, Kind, Major::k, Major::k, true>();
  if constexpr (N % 64 == 0) {  // MN-major tiles are whole halves of 64
    check_product<N, T, Kind, Major::k, Major::mn, false>();
    check_product<N, T, Kind, Major::mn, Major::k, false>();
    check_product<N, T, Kind, Major::mn, Major::mn, false>();
    check_product<N, T, Kind, Major::k, Major::mn, true>();
  } else {
    check_product<N, T, Kind, Major::mn, Major::k, false>();
  }
}

template <class T, Operand Kind>
void check_widths() {
  check_forms<32, T, Kind>();
  check_forms<64, T, Kind>();
  check_forms<80, T, Kind>();
  check_forms<96, T, Kind>();
  check_forms<128, T, Kind>();
  check_forms<176, T, Kind>();
  check_forms<192, T, Kind>();
  check_forms<256, T, Kind>();
}

TEST(Wgmma, every_bf16_form_is_the_product) {
  check_widths<__nv_bfloat16, Operand::bf16>();
}
TEST(Wgmma, every_f16_form_is_the_product) {
  check_widths<__half, Operand::f16>();
}

constexpr int tile_rows = 80;

/// Loads one tile by TMA, writes it out element by element in logical order, and stores it back through TMA.
__global__ void tile_round_trip(const __grid_constant__ layout::TileCopy in,
                                const __grid_constant__ layout::TileCopy out, __half* logical, int position, int head,
                                int batch, std::uint32_t* error) {
  __shared__ __align__(1024) unsigned char tile[2 * tile_rows * 128];
  __shared__ std::uint64_t barrier;
  const std::uint32_t at = ptx::shared_address(tile), bar = ptx::shared_address(&barrier);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(bar, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(bar, sizeof(tile));
    for (int i = 0; i < in.copies; ++i) {
      ptx::tensor_load(at + i * tile_rows * 128, &in.map, bar, 64 * i, position, 0, head, batch);
    }
  }
  __syncthreads();
  sm90::bounded_wait(bar, 0, error, sm90::WaitSite::full_k);
  for (int x = threadIdx.x; x < tile_rows * 128; x += blockDim.x) {
    logical[x] = *reinterpret_cast<__half*>(tile + layout::tile_offset(x / 128, x % 128, tile_rows));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::fence_proxy_async_shared();
    for (int i = 0; i < out.copies; ++i) {
      ptx::tensor_store(&out.map, at + i * tile_rows * 128, 64 * i, position, 0, head, batch);
    }
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
}

TEST(TileCopy, swizzle_zero_fill_and_clipping_are_as_laid_out) {
  for (const std::int64_t dim : {128, 80}) {
    const std::int64_t positions = 200, heads = 3, batch = 2, b = 1, h = 2, position = 160;
    DeviceTensor<__half> in(batch, positions, heads, dim), out(batch, positions, heads, dim);
    fill_normal(in, 9);
    require(cudaMemset(out.data(), 0, static_cast<std::size_t>(out.buffer().size()) * 2), "cudaMemset");
    DeviceBuffer<__half> logical(tile_rows * 128);
    const DeviceBuffer<std::uint32_t> error(std::vector<std::uint32_t>{0});
    const auto load = layout::encode_tile_copy("in", in.view(), batch, positions, heads, dim, tile_rows);
    const auto store = layout::encode_tile_copy("out", out.view(), batch, positions, heads, dim, tile_rows);
    tile_round_trip<<<1, 128>>>(load, store, logical.data(), position, h, b, error.data());
    require(cudaDeviceSynchronize(), "tile_round_trip");
    const std::vector<double> want = in.download(), stored = out.download();
    const std::vector<__half> got = logical.download();
    for (std::int64_t r = 0; r < tile_rows; ++r) {
      for (std::int64_t d = 0; d < 128; ++d) {
        const bool inside = position + r < positions && d < dim;
        const std::size_t at = static_cast<std::size_t>(((b * positions + position + r) * heads + h) * dim + d);
        ASSERT_EQ(static_cast<float>(got[static_cast<std::size_t>(r * 128 + d)]), inside ? want[at] : 0)
            << r << "," << d;
        if (inside) {
          ASSERT_EQ(stored[at], want[at]) << r << "," << d;
        }
      }
    }
    double outside = 0;
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const auto p = static_cast<std::int64_t>(i) / (heads * dim) % positions,
                 head = static_cast<std::int64_t>(i) / dim % heads;
      const bool written = static_cast<std::int64_t>(i) / (positions * heads * dim) == b && head == h && p >= position;
      if (!written) outside += std::abs(stored[i]);
    }
    EXPECT_EQ(outside, 0);
  }
}

__global__ void wait_for_nobody(std::uint32_t* error, std::uint64_t* nanoseconds) {
  __shared__ std::uint64_t barrier;
  const std::uint32_t bar = ptx::shared_address(&barrier);
  ptx::mbarrier_init(bar, 1);
  const std::uint64_t start = ptx::global_timer();
  sm90::bounded_wait(bar, 0, error, sm90::WaitSite::empty_v);
  *nanoseconds = ptx::global_timer() - start;
}

TEST(BoundedWait, gives_up_and_says_who_waited) {
  const DeviceBuffer<std::uint32_t> error(std::vector<std::uint32_t>{0});
  const DeviceBuffer<std::uint64_t> time(1);
  wait_for_nobody<<<1, 1>>>(error.data(), time.data());
  require(cudaDeviceSynchronize(), "wait_for_nobody");
  EXPECT_EQ(error.download()[0], static_cast<std::uint32_t>(sm90::WaitSite::empty_v));
  std::printf("a wait for nobody ends after %.2f s\n", static_cast<double>(time.download()[0]) * 1e-9);
  // A second one sees the error word and ends soon.
  wait_for_nobody<<<1, 1>>>(error.data(), time.data());
  require(cudaDeviceSynchronize(), "wait_for_nobody");
  EXPECT_LT(static_cast<double>(time.download()[0]) * 1e-9, 1.0);
}

__global__ void add_in_bulk(float* sum) {
  __shared__ __align__(16) float mine[64];
  mine[threadIdx.x] = static_cast<float>(threadIdx.x + 1);
  ptx::fence_proxy_async_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::bulk_reduce_add_f32(sum, ptx::shared_address(mine), sizeof(mine));
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
}

TEST(BulkCopy, reductions_of_many_ctas_add_up) {
  const DeviceBuffer<float> sum(std::vector<float>(64, 0.0F));
  add_in_bulk<<<100, 64>>>(sum.data());
  require(cudaDeviceSynchronize(), "add_in_bulk");
  const std::vector<float> got = sum.download();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], 100.0F * static_cast<float>(i + 1));
}

}  // namespace
}  // namespace flashmask::device
