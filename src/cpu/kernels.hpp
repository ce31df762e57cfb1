// The innermost functions of the CPU backend, compiled once per instruction set and chosen at run time.
//
// All work on float32 panels of at most kStrip lanes: a panel is [k][kStrip] row-major, its lanes are query rows
// (forward, dQ) or key columns (dK, dV). Lanes beyond the valid ones up to a multiple of Kernels::lanes hold finite
// values that nobody reads.
#pragma once

#include <cstdint>

#include "flashmask/tensor.hpp"

namespace flashmask::cpu {

/// Rows of a strip and columns of a piece: what one call of a kernel sees at most.
inline constexpr std::int64_t kStrip = 64;

/// A(m, k) = data[m * m_stride + k * k_stride]; one of the strides is 1.
struct Factor {
  const float* data;
  std::int64_t m_stride;
  std::int64_t k_stride;
};

/// Rows of a strided matrix of any dtype.
struct Strided {
  void* data;
  DType dtype;
  std::int64_t row_stride;
  std::int64_t column_stride;
};

/// The four vectors of the columns of a piece.
struct Intervals {
  const std::int32_t* lts;
  const std::int32_t* lte;
  const std::int32_t* uts;
  const std::int32_t* ute;
};

/// State of the online softmax of one strip; log2 domain. All [kStrip].
struct SoftmaxState {
  float* maximum;
  float* sum;
};

/// One piece of a tile as seen by the elementwise kernels.
struct Piece {
  std::int64_t lanes;       ///< padded number of lanes
  std::int64_t count;       ///< rows of the panels: columns (lanes are rows) or rows (lanes are columns)
  std::int32_t first_row;   ///< query row of lane 0 (lanes are rows) or of panel row 0 (lanes are columns)
  const Intervals* hidden;  ///< null for an unmasked piece
  float scale_log2;         ///< softmax scale times log2(e)
};

struct Kernels {
  const char* name;
  std::int64_t lanes;  ///< floats per vector

  /// c[m][lanes] = (accumulate ? c : 0) + A[m][k] * b[k][lanes]. Every element is one chain over k in ascending order,
  /// so a result does not depend on how the work was cut.
  void (*multiply)(std::int64_t m, std::int64_t lanes, std::int64_t k, Factor a, const float* b, float* c,
                   bool accumulate);
  /// dst[rows][columns] (row stride `stride`) = float32 of src.
  void (*widen)(Strided src, std::int64_t rows, std::int64_t columns, float* dst, std::int64_t stride);
  /// dst[columns][kStrip] = float32 of the transpose of src[rows][columns]; lanes up to `lanes` are zeroed.
  void (*widen_transposed)(Strided src, std::int64_t rows, std::int64_t columns, float* dst, std::int64_t lanes);
  /// dst[rows][columns] = src[columns][kStrip] transposed, times factor[row].
  void (*narrow_transposed)(const float* src, const float* factor, std::int64_t rows, std::int64_t columns,
                            Strided dst);
  /// Lanes are rows. scores[count][kStrip] become exp2(scale * score - new maximum), hidden ones 0; updates the state
  /// and rescales out[head_dim][kStrip] to the new maximum.
  void (*softmax)(const Piece& piece, float* scores, SoftmaxState state, float* out, std::int64_t head_dim);
  /// Lanes are rows. scores become dS / scale = P * (dP - delta) with P = exp2(scale * score - lse); lse, delta
  /// [lanes].
  void (*score_gradient_rows)(const Piece& piece, float* scores, const float* dprob, const float* lse,
                              const float* delta);
  /// Lanes are columns. scores become P, dprob becomes dS / scale; lse, delta [count].
  void (*score_gradient_columns)(const Piece& piece, float* scores, float* dprob, const float* lse, const float* delta);
  /// Whether data[rows][columns] (row stride `stride`) holds neither NaN nor infinity.
  bool (*all_finite)(const float* data, std::int64_t rows, std::int64_t columns, std::int64_t stride);
  /// out[lane] = sum over k of a[k][lane] * b[k][lane], one chain in ascending order like `multiply`.
  void (*lane_dots)(std::int64_t lanes, std::int64_t k, const float* a, const float* b, float* out);
};

/// The fastest set this machine runs; FLASHMASK_CPU_ISA = baseline | avx2 | avx512 overrides it (invalid_argument if
/// this build or machine lacks it).
const Kernels& kernels();

namespace isa {
const Kernels& baseline();
#if defined(FLASHMASK_CPU_X86)
const Kernels& avx2();
const Kernels& avx512();
#endif
}  // namespace isa

}  // namespace flashmask::cpu
