#include "sm90/layout/tensor_map.hpp"

#include <cuda_runtime_api.h>

#include "core/check.hpp"
#include "sm90/layout/swizzle.hpp"

namespace flashmask::sm90::layout {
namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// Fetched through the runtime so that no binary links against the driver library.
Encode driver_encode() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess || function == nullptr) {
      core::fail(ErrorCode::device,
                 "cudaGetDriverEntryPointByVersion(cuTensorMapEncodeTiled): {}; a driver of CUDA 12.0 or newer and a "
                 "Hopper GPU are needed",
                 cudaGetErrorString(status));
    }
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

CUtensorMapDataType element_type(const char* name, DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::f32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
  core::fail(ErrorCode::invalid_argument, "{}: unknown dtype", name);
}

constexpr cuuint32_t unit_steps[5] = {1, 1, 1, 1, 1};

void encode(const char* name, CUtensorMap* map, DType dtype, cuuint32_t rank, const void* data,
            const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box, CUtensorMapSwizzle swizzle) {
  const CUresult result = driver_encode()(map, element_type(name, dtype), rank, const_cast<void*>(data), extents,
                                          strides, box, unit_steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    core::fail(ErrorCode::device,
               "cuTensorMapEncodeTiled({}) returned {}: extents {} {} {}, byte strides {} {}, box {} {} {}", name,
               static_cast<int>(result), extents[0], extents[1], rank > 2 ? extents[2] : 1, strides[0],
               rank > 2 ? strides[1] : 0, box[0], box[1], rank > 2 ? box[2] : 1);
  }
}

/// Extents and byte strides of a tensor's axes as TMA wants them; head_dim is cut into halves of 64 where it can be.
struct TileAxes {
  cuuint64_t dim, positions, heads, batch;
  cuuint32_t halves;
  cuuint64_t position_stride, head_stride, batch_stride;
  std::int32_t copies;
};

TileAxes axes_of(TensorView tensor, std::int64_t batch, std::int64_t positions, std::int64_t heads,
                 std::int64_t head_dim, Halves wanted) {
  const std::array<std::int64_t, 4> strides = tensor.strides;
  // A stride over an extent of one is never followed; the driver still wants a legal number there.
  const auto byte_stride = [&](int axis, std::int64_t extent) {
    const std::int64_t stride = extent > 1 ? strides[static_cast<std::size_t>(axis)] : 8;
    return static_cast<cuuint64_t>(stride) * 2;
  };
  const bool whole = wanted == Halves::together && head_dim % elements_per_row == 0;
  const auto halves = static_cast<cuuint32_t>((head_dim + elements_per_row - 1) / elements_per_row);
  return {.dim = static_cast<cuuint64_t>(whole ? std::int64_t{elements_per_row} : head_dim),
          .positions = static_cast<cuuint64_t>(positions),
          .heads = static_cast<cuuint64_t>(heads),
          .batch = static_cast<cuuint64_t>(batch),
          .halves = whole ? halves : 1U,
          .position_stride = byte_stride(1, positions),
          .head_stride = byte_stride(2, heads),
          .batch_stride = byte_stride(0, batch),
          .copies = whole ? 1 : static_cast<std::int32_t>(halves)};
}

}  // namespace

TileCopy encode_tile_copy(const char* name, TensorView tensor, std::int64_t batch, std::int64_t positions,
                          std::int64_t heads, std::int64_t head_dim, std::uint32_t rows, Halves halves) {
  const TileAxes a = axes_of(tensor, batch, positions, heads, head_dim, halves);
  const cuuint64_t extents[5] = {a.dim, a.positions, a.halves, a.heads, a.batch};
  const cuuint64_t strides[4] = {a.position_stride, row_bytes, a.head_stride, a.batch_stride};
  const cuuint32_t box[5] = {elements_per_row, rows, a.halves, 1, 1};
  TileCopy copy{.map = {}, .copies = a.copies};
  encode(name, &copy.map, tensor.dtype, 5, tensor.data, extents, strides, box, CU_TENSOR_MAP_SWIZZLE_128B);
  return copy;
}

TileCopy encode_packed_copy(const char* name, TensorView tensor, std::int64_t batch, std::int64_t positions,
                            std::int64_t heads, std::int64_t head_dim, std::uint32_t rows, std::uint32_t packed_heads) {
  const TileAxes a = axes_of(tensor, batch, positions, heads, head_dim, Halves::together);
  const cuuint64_t extents[5] = {a.dim, a.heads, a.positions, a.halves, a.batch};
  const cuuint64_t strides[4] = {a.head_stride, a.position_stride, row_bytes, a.batch_stride};
  const cuuint32_t box[5] = {elements_per_row, packed_heads, rows, a.halves, 1};
  TileCopy copy{.map = {}, .copies = a.copies};
  encode(name, &copy.map, tensor.dtype, 5, tensor.data, extents, strides, box, CU_TENSOR_MAP_SWIZZLE_128B);
  return copy;
}

CUtensorMap encode_matrix(const char* name, const void* data, DType dtype, std::int64_t rows, std::int64_t columns,
                          std::uint32_t box_rows, std::uint32_t box_columns) {
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * (dtype == DType::f32 ? 4U : 2U)};
  const cuuint32_t box[2] = {box_columns, box_rows};
  CUtensorMap map;
  encode(name, &map, dtype, 2, data, extents, strides, box, CU_TENSOR_MAP_SWIZZLE_NONE);
  return map;
}

}  // namespace flashmask::sm90::layout
