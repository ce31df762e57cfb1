// Exact masked attention, forward and backward (docs/attention.md).
//
// Layout: strided views [batch][rows or columns][heads][head_dim] (BHSD: other strides). Inputs: any strides, 0 too,
// but not along head_dim and not all four; outputs: no overlap. LSE: float32 [batch][query heads][rows], natural
// logarithm. A row that sees nothing: out = 0, lse = -inf, all its gradients 0. A column nobody sees: dK = dV = 0. What
// is hidden does not matter: a row or column that does not see it gets the same bits whatever it holds, NaN and
// infinity included, so padding need not be initialised. (The sm90 kernels promise this for whole hidden tiles only:
// there, keep padding finite.) What is seen follows IEEE arithmetic: a NaN reaches whoever sees it.
//
// These calls work on host memory. Device pointers and a stream go to sm90::forward() and sm90::backward() of sm90.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include "flashmask/mask.hpp"
#include "flashmask/tensor.hpp"
#include "flashmask/tile.hpp"

namespace flashmask {

/// Extents of one attention call. query_heads must be a multiple of kv_heads (MHA, GQA, MQA).
struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t query_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 0;

  bool operator==(const AttentionShape&) const = default;
};

/// The mask of a call: a host mask, or a prebuilt tile map beside it (same mask, any tile shape) to save classifying.
/// Pointers are borrowed for the duration of the call.
struct MaskArgument {
  const ColumnMask* mask = nullptr;
  const TileMap* map = nullptr;  ///< optional; built inside the call when absent
};

struct ForwardArguments {
  AttentionShape shape;
  MaskArgument mask;
  TensorView q, k, v;
  MutableTensorView out;
  float* lse = nullptr;          ///< contiguous [batch][query_heads][rows]
  std::optional<float> scale{};  ///< of the scores; default 1 / sqrt(head_dim)
  int threads = 0;               ///< at most 4096; 0: FLASHMASK_THREADS of the environment if set, else one per core
};

struct BackwardArguments {
  AttentionShape shape;
  MaskArgument mask;
  TensorView q, k, v, out, dout;
  const float* lse = nullptr;
  MutableTensorView dq, dk, dv;
  std::optional<float>
      scale{};      ///< must be the forward's: lse is of the scaled scores, and cannot be checked against it
  int threads = 0;  ///< as in ForwardArguments
};

/// Throw invalid_argument or unsupported before any work if the arguments do not describe a legal call.
void validate(const ForwardArguments& arguments);
void validate(const BackwardArguments& arguments);

/// Computes out and lse on host memory. Validates first. All tensors of a call share one dtype.
void forward(const ForwardArguments& arguments);
/// Computes dq, dk and dv on host memory from a forward's out and lse. Deterministic: bitwise equal from run to run
/// for any number of threads.
void backward(const BackwardArguments& arguments);

/// Merges (out, lse) pairs of two disjoint column sets of the same rows into `out`/`lse`; fp32 tensors and host memory.
void merge_outputs(const AttentionShape& shape, TensorView out_a, const float* lse_a, TensorView out_b,
                   const float* lse_b, MutableTensorView out, float* lse);

}  // namespace flashmask
