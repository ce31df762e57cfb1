#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/check.hpp"
#include "core/strides.hpp"
#include "flashmask/attention.hpp"

namespace flashmask {
namespace {

constexpr std::int64_t kMaxHeadDim = 256;
constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max();
using Extents = std::array<std::int64_t, 4>;

void check_shape(const AttentionShape& s) {
  core::check(s.batch >= 0 && s.batch <= kMaxExtent, "shape.batch is {}: it must lie in [0, {}]", s.batch, kMaxExtent);
  core::check(s.rows >= 0 && s.rows <= kMaxExtent, "shape.rows is {}: it must lie in [0, {}]", s.rows, kMaxExtent);
  core::check(s.columns >= 0 && s.columns <= kMaxExtent, "shape.columns is {}: it must lie in [0, {}]", s.columns,
              kMaxExtent);
  core::check(s.query_heads >= 1 && s.query_heads <= kMaxExtent, "shape.query_heads is {}: at least one head is needed",
              s.query_heads);
  core::check(s.kv_heads >= 1 && s.query_heads % s.kv_heads == 0,
              "shape.kv_heads is {}: it must be positive and divide shape.query_heads = {} (equal for MHA, 1 for MQA)",
              s.kv_heads, s.query_heads);
  if (s.head_dim > kMaxHeadDim) {
    core::fail(ErrorCode::unsupported, "shape.head_dim is {}: the CPU backend supports 1 to {}", s.head_dim,
               kMaxHeadDim);
  }
  core::check(s.head_dim >= 1, "shape.head_dim is {}: it must lie in [1, {}]", s.head_dim, kMaxHeadDim);
}

void check_mask(const AttentionShape& s, const MaskArgument& argument) {
  core::check(argument.mask != nullptr,
              "mask.mask is null: pass a ColumnMask (a mask that hides nothing is ColumnMask({{batch, 1, rows, "
              "columns}}))");
  const MaskShape& m = argument.mask->shape();
  core::check(m.batch == s.batch, "the mask has batch {} but shape.batch is {}: stack one mask per batch row", m.batch,
              s.batch);
  core::check(m.rows == s.rows, "the mask speaks about {} rows but shape.rows is {}", m.rows, s.rows);
  core::check(m.columns == s.columns, "the mask has {} columns but shape.columns is {}", m.columns, s.columns);
  core::check(m.heads == 1 || m.heads == s.kv_heads || m.heads == s.query_heads,
              "the mask has {} heads: allowed are 1, shape.kv_heads = {} and shape.query_heads = {}", m.heads,
              s.kv_heads, s.query_heads);
  if (argument.map == nullptr) return;
  const MaskShape& built = argument.map->mask_shape();
  core::check(built == m,
              "mask.map was built for a mask of batch {}, heads {}, rows {}, columns {} but mask.mask has {}, {}, {}, "
              "{}: build it from this mask or leave it null",
              built.batch, built.heads, built.rows, built.columns, m.batch, m.heads, m.rows, m.columns);
}

bool empty(const Extents& e) {
  return e[0] == 0 || e[1] == 0;
}

/// Data present and of the call's dtype, offsets inside int64.
void check_view(const char* name, const TensorView& view, const Extents& extents, DType dtype) {
  core::check(view.dtype == dtype, "{} is {} but q is {}: all tensors of a call share one dtype", name,
              to_string(view.dtype), to_string(dtype));
  if (empty(extents)) return;
  core::check(view.data != nullptr, "{}.data is null but the tensor has elements", name);
  std::int64_t reach = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    std::int64_t span = 0;
    const bool overflow = view.strides[i] == std::numeric_limits<std::int64_t>::min() ||
                          __builtin_mul_overflow(std::abs(view.strides[i]), extents[i] - 1, &span) ||
                          __builtin_add_overflow(reach, span, &reach) ||
                          reach > std::numeric_limits<std::int64_t>::max() / 4;
    core::check(!overflow, "{}.strides[{}] = {} times extent {} leaves the address space", name, i, view.strides[i],
                extents[i]);
  }
}

/// As check_view. Stride 0 shares elements between batch rows, positions or heads, on purpose; along head_dim, where
/// kernels and frameworks ask for 1, it is a stride that was forgotten or an expanded tensor.
void check_input(const char* name, const TensorView& view, const Extents& extents, DType dtype) {
  check_view(name, view, extents, dtype);
  const bool none = std::ranges::all_of(view.strides, [](std::int64_t s) { return s == 0; });
  const bool several = std::ranges::any_of(extents, [](std::int64_t e) { return e > 1; });
  if (empty(extents) || !several || (!none && (view.strides[3] != 0 || extents[3] == 1))) return;
  core::fail(ErrorCode::invalid_argument,
             "{}.strides = [{}, {}, {}, {}] (batch, position, head, dim) for extents [{}, {}, {}, {}]: {}; set them, "
             "e.g. to bshd_strides(), and copy a tensor that a framework expanded from one element",
             name, view.strides[0], view.strides[1], view.strides[2], view.strides[3], extents[0], extents[1],
             extents[2], extents[3], none ? "not one is set" : "that of head_dim must not be 0");
}

/// Positive strides under which no two elements share an address.
void check_output(const char* name, const TensorView& view, const Extents& extents, DType dtype) {
  check_view(name, view, extents, dtype);
  if (empty(extents)) return;
  core::check(core::strides_keep_apart(view.strides, extents),
              "{}.strides = [{}, {}, {}, {}] (batch, position, head, dim) for extents [{}, {}, {}, {}]: an output "
              "needs positive strides under which no two elements overlap, e.g. bshd_strides()",
              name, view.strides[0], view.strides[1], view.strides[2], view.strides[3], extents[0], extents[1],
              extents[2], extents[3]);
}

void check_rest(const AttentionShape& s, const float* lse, const std::optional<float>& scale, int threads) {
  core::check(lse != nullptr || s.batch == 0 || s.rows == 0,
              "lse is null: it must hold batch x query_heads x rows = {} x {} x {} floats", s.batch, s.query_heads,
              s.rows);
  core::check(!scale || (std::isfinite(*scale) && *scale != 0),
              "scale is {}: it must be finite and not zero; leave it unset for 1 / sqrt(head_dim)", scale.value_or(0));
  core::check(threads >= 0 && threads <= 4096, "threads is {}: allowed are 0 (one per core) to 4096", threads);
}

/// Extents of q, out and their gradients, and of k, v and theirs.
struct CallExtents {
  Extents query, key;
};

/// What both passes ask: the shape, the mask, the inputs q, k, v and the scalars.
template <typename Arguments>
CallExtents check_call(const Arguments& a) {
  const AttentionShape& s = a.shape;
  check_shape(s);
  check_mask(s, a.mask);
  const Extents query{s.batch, s.rows, s.query_heads, s.head_dim};
  const Extents key{s.batch, s.columns, s.kv_heads, s.head_dim};
  check_input("q", a.q, query, a.q.dtype);
  check_input("k", a.k, key, a.q.dtype);
  check_input("v", a.v, key, a.q.dtype);
  check_rest(s, a.lse, a.scale, a.threads);
  return {query, key};
}

}  // namespace

void validate(const ForwardArguments& a) {
  const CallExtents e = check_call(a);
  check_output("out", a.out, e.query, a.q.dtype);
}

void validate(const BackwardArguments& a) {
  const CallExtents e = check_call(a);
  check_input("out", a.out, e.query, a.q.dtype);
  check_input("dout", a.dout, e.query, a.q.dtype);
  check_output("dq", a.dq, e.query, a.q.dtype);
  check_output("dk", a.dk, e.key, a.q.dtype);
  check_output("dv", a.dv, e.key, a.q.dtype);
}

}  // namespace flashmask
