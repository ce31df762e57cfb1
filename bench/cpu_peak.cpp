// Single-precision peak of one core: independent multiply-adds in registers and nothing else. Compiled once per
// instruction set (FLASHMASK_BENCH_ISA names the function).
#include "cpu/isa/vector.hpp"

namespace flashmask::bench {

/// Runs `rounds` times 12 independent vector multiply-adds; returns how many floating-point operations that is.
double FLASHMASK_BENCH_ISA(long rounds, float* sink) {
  using cpu::isa::splat;
  cpu::isa::Vec sum[12];
  for (auto& s : sum) s = splat(1.0F);
  // From memory that the compiler cannot see through, so that nothing is folded.
  const cpu::isa::Vec factor = cpu::isa::load(sink);
  const cpu::isa::Vec term = cpu::isa::load(sink + cpu::isa::kLanes);
  for (long i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& s : sum) s = s * factor + term;
  }
  for (auto& s : sum) cpu::isa::store(sink, cpu::isa::load(sink) + s);
  return static_cast<double>(rounds) * 12 * cpu::isa::kLanes * 2;
}

}  // namespace flashmask::bench
