#include <optional>
#include <string>

#include "core/check.hpp"
#include "core/environment.hpp"
#include "cpu/kernels.hpp"

namespace flashmask::cpu {
namespace {

bool machine_runs(const std::string& name) {
  if (name == "baseline") return true;
#if defined(FLASHMASK_CPU_X86)
  if (name == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (name == "avx512") {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return false;
}

const Kernels& named(const std::string& name) {
#if defined(FLASHMASK_CPU_X86)
  if (name == "avx512") return isa::avx512();
  if (name == "avx2") return isa::avx2();
#endif
  return isa::baseline();
}

}  // namespace

const Kernels& kernels() {
  if (const auto wanted = core::environment("FLASHMASK_CPU_ISA")) {
    core::check(
        machine_runs(*wanted),
        "environment variable FLASHMASK_CPU_ISA={}: this build and machine run it not; allowed are baseline and, "
        "on x86-64 machines that have them, avx2 and avx512; unset it to choose automatically",
        *wanted);
    return named(*wanted);
  }
  for (const char* name : {"avx512", "avx2"}) {
    if (machine_runs(name)) return named(name);
  }
  return isa::baseline();
}

}  // namespace flashmask::cpu
