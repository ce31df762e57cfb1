#include "problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.hpp"
#include "core/dtype.hpp"
#include "core/element.hpp"
#include "core/parallel_for.hpp"
#include "report.hpp"

namespace flashmask::app {
namespace {

using core::check;

/// Sum of four uniform 16-bit draws, centred and scaled to standard deviation 1: cheap, symmetric, bounded.
float random_value(std::uint64_t bits) {
  const auto part = [bits](int shift) { return static_cast<float>((bits >> shift) & 0xffffU); };
  const float sum = part(0) + part(16) + part(32) + part(48);
  constexpr float kMean = 2 * 65535.0F, kDeviation = 37836.7F;  // sqrt(4 / 12) * 65536
  return (sum - kMean) / kDeviation;
}

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::size_t element_count(std::int64_t batch, std::int64_t positions, std::int64_t heads, std::int64_t dim) {
  constexpr std::int64_t kElements = std::int64_t{1} << 36;
  std::int64_t size = 1;
  for (const std::int64_t extent : {batch, positions, heads, dim}) {
    check(extent == 0 || size <= kElements / extent, "a tensor of {} x {} x {} x {} elements is more than 2^36", batch,
          positions, heads, dim);
    size *= extent;
  }
  return static_cast<std::size_t>(size);
}

}  // namespace

Tensor::Tensor(std::int64_t batch, std::int64_t positions, std::int64_t heads, std::int64_t dim, DType dtype)
    : strides_(bshd_strides(positions, heads, dim)),
      dim_(dim),
      dtype_(dtype),
      size_(static_cast<std::int64_t>(element_count(batch, positions, heads, dim))),
      bytes_(static_cast<std::size_t>(size_) * size_of(dtype)) {}

void Tensor::store(std::int64_t index, float value) {
  std::uint8_t* to = bytes_.data() + static_cast<std::size_t>(index) * size_of(dtype_);
  if (dtype_ == DType::f32) {
    std::memcpy(to, &value, sizeof value);
  } else {
    const std::uint16_t half = dtype_ == DType::f16 ? core::float_to_f16(value) : core::float_to_bf16(value);
    std::memcpy(to, &half, sizeof half);
  }
}

std::int64_t Tensor::index(std::int64_t batch, std::int64_t position, std::int64_t head, std::int64_t dim) const {
  return batch * strides_[0] + position * strides_[1] + head * strides_[2] + dim * strides_[3];
}

void Tensor::fill_random(std::uint64_t seed, std::uint64_t stream) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 20;
  const std::uint64_t key = mixed(seed * 0x9e3779b97f4a7c15ULL + stream);
  const std::int64_t blocks = (size_ + kBlock - 1) / kBlock;
  const int threads = blocks < 2 ? 1 : core::thread_count(0);
  core::parallel_for(blocks, threads, [&](std::int64_t block, int) {
    for (std::int64_t i = block * kBlock; i < std::min(size_, (block + 1) * kBlock); ++i) {
      store(i, random_value(mixed(key + 0x9e3779b97f4a7c15ULL * (static_cast<std::uint64_t>(i) + 1))));
    }
  });
}

void Tensor::fill_zero() {
  std::fill(bytes_.begin(), bytes_.end(), std::uint8_t{0});
}

void Tensor::poison() {
  std::fill(bytes_.begin(), bytes_.end(), std::uint8_t{0xff});
}  // a NaN in every dtype

void Tensor::keep_component(std::int64_t dim) {
  for (std::int64_t i = 0; i < size_; ++i) {
    if (i % dim_ != dim) store(i, 0);
  }
}

double Tensor::at(std::int64_t batch, std::int64_t position, std::int64_t head, std::int64_t dim) const {
  return core::element(view(), batch, position, head, dim);
}

void Tensor::set(std::int64_t batch, std::int64_t position, std::int64_t head, std::int64_t dim, double value) {
  store(index(batch, position, head, dim), static_cast<float>(value));
}

Problem::Problem(const AttentionShape& s, DType dtype, const ColumnMask& column_mask, const TileMap& map,
                 int thread_count, std::uint64_t seed)
    : shape(s),
      mask{&column_mask, &map},
      threads(thread_count),
      q(s.batch, s.rows, s.query_heads, s.head_dim, dtype),
      k(s.batch, s.columns, s.kv_heads, s.head_dim, dtype),
      v(s.batch, s.columns, s.kv_heads, s.head_dim, dtype),
      dout(s.batch, s.rows, s.query_heads, s.head_dim, dtype),
      out(s.batch, s.rows, s.query_heads, s.head_dim, dtype),
      dq(s.batch, s.rows, s.query_heads, s.head_dim, dtype),
      dk(s.batch, s.columns, s.kv_heads, s.head_dim, dtype),
      dv(s.batch, s.columns, s.kv_heads, s.head_dim, dtype),
      lse(static_cast<std::size_t>(s.batch * s.query_heads * s.rows)) {
  std::uint64_t stream = 0;
  for (Tensor* tensor : {&q, &k, &v, &dout}) tensor->fill_random(seed, stream++);
}

ForwardArguments Problem::forward_arguments() {
  ForwardArguments arguments;
  arguments.shape = shape;
  arguments.mask = mask;
  arguments.q = q.view(), arguments.k = k.view(), arguments.v = v.view();
  arguments.out = out.view();
  arguments.lse = lse.data();
  arguments.threads = threads;
  return arguments;
}

BackwardArguments Problem::backward_arguments() {
  BackwardArguments arguments;
  arguments.shape = shape;
  arguments.mask = mask;
  arguments.q = q.view(), arguments.k = k.view(), arguments.v = v.view();
  arguments.out = out.view(), arguments.dout = dout.view();
  arguments.lse = lse.data();
  arguments.dq = dq.view(), arguments.dk = dk.view(), arguments.dv = dv.view();
  arguments.threads = threads;
  return arguments;
}

double Problem::run_forward() {
  out.poison();
  std::fill(lse.begin(), lse.end(), std::numeric_limits<float>::quiet_NaN());
  const ForwardArguments arguments = forward_arguments();
  const Stopwatch watch;
  forward_engine(arguments);
  return watch.milliseconds();
}

double Problem::run_backward() {
  for (Tensor* tensor : {&dq, &dk, &dv}) tensor->poison();
  const BackwardArguments arguments = backward_arguments();
  const Stopwatch watch;
  backward_engine(arguments);
  return watch.milliseconds();
}

Work work_of(const AttentionShape& shape, const ColumnMask& mask) {
  const auto heads_per_mask = static_cast<double>(shape.query_heads) / static_cast<double>(mask.shape().heads);
  const double per_cell = 4.0 * static_cast<double>(shape.head_dim);
  const double cells = static_cast<double>(shape.batch) * static_cast<double>(shape.query_heads) *
                       static_cast<double>(shape.rows) * static_cast<double>(shape.columns);
  return {per_cell * static_cast<double>(mask.visible_cells()) * heads_per_mask, per_cell * cells * tile_density(mask)};
}

DType parse_dtype(const std::string& text) {
  if (text == "bf16") return DType::bf16;
  if (text == "fp16" || text == "f16") return DType::f16;
  check(text == "f32", "--dtype {}: expected bf16, fp16 or f32", text);
  return DType::f32;
}

void parse_heads(const std::string& text, AttentionShape& shape) {
  std::int64_t numbers[2] = {0, 0};
  const char* end = text.data() + text.size();
  auto result = std::from_chars(text.data(), end, numbers[0]);
  if (result.ec == std::errc{} && result.ptr != end && *result.ptr == ':') {
    result = std::from_chars(result.ptr + 1, end, numbers[1]);
  } else {
    numbers[1] = numbers[0];
  }
  const bool parsed = result.ec == std::errc{} && result.ptr == end;
  check(parsed && numbers[0] >= 1 && numbers[0] <= 65536 && numbers[1] >= 1 && numbers[0] % numbers[1] == 0,
        "--heads {}: expected Q:KV or one number, 1 to 65536 query heads that are a multiple of the KV heads", text);
  shape.query_heads = numbers[0];
  shape.kv_heads = numbers[1];
}

}  // namespace flashmask::app
