// The CPU backend against the single-precision peak of the same cores in the same run (docs/cpu.md).
//
//   cpu_kernels --benchmark_repetitions=5 --benchmark_report_aggregates_only=false
//
// Counters: FLOP/s counts visible cells alone (4 D a cell and query head forward, 10 D backward; the backward computes
// S and dP twice and really does 14 D) per second of processor time summed over threads, so a busy machine does not
// blur it; of_peak divides that by the peak of one core.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "cpu/buffer.hpp"
#include "cpu/kernels.hpp"
#include "flashmask/attention.hpp"
#include "flashmask/builders.hpp"

namespace flashmask::bench {

double baseline(long rounds, float* sink);
#if defined(FLASHMASK_CPU_X86)
double avx2(long rounds, float* sink);
double avx512(long rounds, float* sink);
#endif

namespace {

double multiply_adds(long rounds, float* sink) {
#if defined(FLASHMASK_CPU_X86)
  const std::string_view name = cpu::kernels().name;
  if (name == "avx512") return avx512(rounds, sink);
  if (name == "avx2") return avx2(rounds, sink);
#endif
  return baseline(rounds, sink);
}

/// FLOP/s of one core: the best of many short runs, so that a busy neighbour does not lower it.
double peak_of_a_core() {
  static const double peak = [] {
    std::array<float, 64> sink{};
    sink.fill(1e-6F);
    double best = 0;
    for (int run = 0; run < 50; ++run) {
      const auto start = std::chrono::steady_clock::now();
      const double work = multiply_adds(200'000, sink.data());
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      benchmark::DoNotOptimize(sink);
      best = std::max(best, work / time.count());
    }
    return best;
  }();
  return peak;
}

void report(benchmark::State& state, double flop_per_iteration) {
  using benchmark::Counter;
  const double flop = flop_per_iteration * static_cast<double>(state.iterations());
  state.counters["FLOP/s"] = Counter(flop, Counter::kIsRate);
  state.counters["of_peak"] = Counter(flop / (peak_of_a_core()), Counter::kIsRate);
  state.SetLabel(cpu::kernels().name);
}

void peak(benchmark::State& state) {
  std::array<float, 64> sink{};
  sink.fill(1e-6F);
  double flop = 0;
  for (auto _ : state) {
    flop = multiply_adds(1'000'000, sink.data());
    benchmark::DoNotOptimize(sink);
  }
  report(state, flop);
}
BENCHMARK(peak)->MeasureProcessCPUTime();

/// One 64 x 64 piece: S^T = K Q^T with head_dim = range(0).
void scores_product(benchmark::State& state) {
  const std::int64_t dim = state.range(0);
  cpu::Buffer a(cpu::kStrip * dim);
  cpu::Buffer b(dim * cpu::kStrip);
  cpu::Buffer c(cpu::kStrip * cpu::kStrip);
  for (auto _ : state) {
    cpu::kernels().multiply(cpu::kStrip, cpu::kStrip, dim, {a.data(), dim, 1}, b.data(), c.data(), false);
    benchmark::DoNotOptimize(c.data());
  }
  report(state, 2.0 * static_cast<double>(cpu::kStrip * cpu::kStrip * dim));
}
BENCHMARK(scores_product)->Arg(64)->Arg(128)->MeasureProcessCPUTime();

/// Tensors of one call, bf16.
struct Tensors {
  AttentionShape shape;
  ColumnMask mask;
  TileMap map;
  std::vector<std::uint16_t> q, k, v, out, dout, dq, dk, dv;
  std::vector<float> lse;
  int threads;

  Tensors(const AttentionShape& s, ColumnMask m, int t)
      : shape(s), mask(std::move(m)), map(TileMap::build(mask, {64, 64}, TileRule::exact)), threads(t) {
    const auto rows = static_cast<std::size_t>(s.batch * s.rows * s.query_heads * s.head_dim);
    const auto columns = static_cast<std::size_t>(s.batch * s.columns * s.kv_heads * s.head_dim);
    std::uint32_t seed = 1;
    const auto random = [&](std::vector<std::uint16_t>& x, std::size_t size) {
      for (std::size_t i = 0; i < size; ++i) {
        seed = seed * 1664525U + 1013904223U;
        x.push_back(core::float_to_bf16(static_cast<float>(seed >> 8) * 0x1p-23F - 1.0F));
      }
    };
    random(q, rows), random(k, columns), random(v, columns), random(dout, rows);
    out.resize(rows), dq.resize(rows), dk.resize(columns), dv.resize(columns);
    lse.resize(static_cast<std::size_t>(s.batch * s.query_heads * s.rows));
  }
  [[nodiscard]] MutableTensorView rows(std::vector<std::uint16_t>& x) const {
    return {x.data(), DType::bf16, bshd_strides(shape.rows, shape.query_heads, shape.head_dim)};
  }
  [[nodiscard]] MutableTensorView columns(std::vector<std::uint16_t>& x) const {
    return {x.data(), DType::bf16, bshd_strides(shape.columns, shape.kv_heads, shape.head_dim)};
  }
  void run_forward() {
    forward({.shape = shape,
             .mask = {&mask, &map},
             .q = rows(q),
             .k = columns(k),
             .v = columns(v),
             .out = rows(out),
             .lse = lse.data(),
             .threads = threads});
  }
  void run_backward() {
    backward({.shape = shape,
              .mask = {&mask, &map},
              .q = rows(q),
              .k = columns(k),
              .v = columns(v),
              .out = rows(out),
              .dout = rows(dout),
              .lse = lse.data(),
              .dq = rows(dq),
              .dk = columns(dk),
              .dv = columns(dv),
              .threads = threads});
  }
  /// Forward FLOP of the visible cells.
  [[nodiscard]] double flop() const {
    const double heads_per_mask = static_cast<double>(shape.query_heads) / static_cast<double>(mask.shape().heads);
    return 4.0 * static_cast<double>(shape.head_dim) * static_cast<double>(mask.visible_cells()) * heads_per_mask;
  }
};

Tensors full_attention(std::int64_t head_dim) {
  return {{.rows = 2048, .columns = 2048, .query_heads = 1, .kv_heads = 1, .head_dim = head_dim},
          masks::full({1, 1, 2048, 2048}),
          1};
}

/// Unmasked tiles only, one core: the share of peak that the schedule reaches.
void forward_unmasked(benchmark::State& state) {
  Tensors tensors = full_attention(state.range(0));
  for (auto _ : state) tensors.run_forward();
  report(state, tensors.flop());
}
BENCHMARK(forward_unmasked)->Arg(64)->Arg(128)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

void backward_unmasked(benchmark::State& state) {
  Tensors tensors = full_attention(state.range(0));
  tensors.run_forward();
  for (auto _ : state) tensors.run_backward();
  report(state, 2.5 * tensors.flop());
}
BENCHMARK(backward_unmasked)->Arg(64)->Arg(128)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

/// Causal documents of about 1.3K tokens, head_dim 128, two heads, two threads; range(0) tokens.
Tensors documents(std::int64_t n) {
  const std::vector<std::int64_t> eighth{n / 16, n / 8, n / 32, n / 4, n / 32, n / 8, n / 4, n / 8};
  return {{.rows = n, .columns = n, .query_heads = 2, .kv_heads = 2, .head_dim = 128},
          masks::causal_document({1, 1, n, n}, masks::documents_of(eighth)),
          2};
}

void forward_causal_document(benchmark::State& state) {
  Tensors tensors = documents(state.range(0));
  for (auto _ : state) tensors.run_forward();
  report(state, tensors.flop());
}
BENCHMARK(forward_causal_document)->Arg(8192)->Arg(32768)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

void backward_causal_document(benchmark::State& state) {
  Tensors tensors = documents(state.range(0));
  tensors.run_forward();
  for (auto _ : state) tensors.run_backward();
  report(state, 2.5 * tensors.flop());
}
BENCHMARK(backward_causal_document)->Arg(8192)->Arg(32768)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

/// What a mask costs before any attention: the exact 64 x 64 map of range(0) columns.
void build_tile_map(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const ColumnMask mask = masks::causal({1, 1, n, n});
  for (auto _ : state) benchmark::DoNotOptimize(TileMap::build(mask, {64, 64}, TileRule::exact));
}
BENCHMARK(build_tile_map)->Arg(8192)->Arg(32768)->Arg(131072)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace flashmask::bench

BENCHMARK_MAIN();
