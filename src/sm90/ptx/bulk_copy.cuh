// Bulk asynchronous copies without a tensor map (cp.async.bulk), bulk reductions and their completion groups.
#pragma once

#include <cstdint>

namespace flashmask::sm90::ptx {

/// Global to shared memory; completes `bytes` on `barrier`. Addresses 16-byte aligned, bytes a multiple of 16.
__device__ __forceinline__ void bulk_load(std::uint32_t destination, const void* source, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Shared to global memory, in the current bulk group of this thread.
__device__ __forceinline__ void bulk_store(void* destination, std::uint32_t source, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination), "r"(source), "r"(bytes)
               : "memory");
}

/// Adds `bytes / 4` floats of shared memory onto global memory, in the current bulk group of this thread.
__device__ __forceinline__ void bulk_reduce_add_f32(float* destination, std::uint32_t source, std::uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(destination),
               "r"(source), "r"(bytes)
               : "memory");
}

/// red.global.add.v4.f32: four neighbouring floats, 16-byte aligned, from registers.
__device__ __forceinline__ void reduce_add_v4(float* destination, float a, float b, float c, float d) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(destination), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

/// Closes the current bulk group.
__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most `Pending` bulk groups of this thread still read their source.
template <int Pending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

/// Waits until at most `Pending` bulk groups of this thread are incomplete (their writes visible to this thread).
template <int Pending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace flashmask::sm90::ptx
