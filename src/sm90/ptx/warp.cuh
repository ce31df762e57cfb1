// One-instruction helpers of a warp or thread: election, register budget, special registers.
#pragma once

#include <cstdint>

namespace flashmask::sm90::ptx {

/// elect.sync: true in exactly one lane of a converged warp.
__device__ __forceinline__ bool elect_one() {
  std::uint32_t elected;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "elect.sync _|p, 0xffffffff;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(elected));
  return elected != 0;
}

/// setmaxnreg.inc: this warpgroup may use `Registers` (a multiple of 8, 24 to 256) from here on.
template <int Registers>
__device__ __forceinline__ void registers_increase() {
  static_assert(Registers % 8 == 0 && Registers >= 24 && Registers <= 256, "setmaxnreg takes 24 to 256 in steps of 8");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// setmaxnreg.dec: this warpgroup gives back registers above `Registers`.
template <int Registers>
__device__ __forceinline__ void registers_decrease() {
  static_assert(Registers % 8 == 0 && Registers >= 24 && Registers <= 256, "setmaxnreg takes 24 to 256 in steps of 8");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Index of this lane, re-read where it is used so that it occupies no register in between.
__device__ __forceinline__ std::uint32_t lane_index() {
  std::uint32_t lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// threadIdx.x, re-read where it is used so that it occupies no register in between.
__device__ __forceinline__ std::uint32_t thread_index() {
  std::uint32_t thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

/// Nanoseconds of the global timer (coarse: steps of up to a microsecond).
__device__ __forceinline__ std::uint64_t global_timer() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

/// Cycles of this multiprocessor.
__device__ __forceinline__ std::uint64_t cycle_counter() {
  std::uint64_t cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
  return cycles;
}

/// nanosleep: a hint to stay away from the issue slots for a while.
__device__ __forceinline__ void sleep_nanoseconds(std::uint32_t nanoseconds) {
  asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds));
}

/// Keeps the compiler from moving reads and writes of a register over this place (around asynchronous wgmma).
__device__ __forceinline__ void pin(float& value) {
  asm volatile("" : "+f"(value));
}
__device__ __forceinline__ void pin(std::uint32_t& value) {
  asm volatile("" : "+r"(value));
}

}  // namespace flashmask::sm90::ptx
