// Fences between proxies and scopes.
#pragma once

#include <cstdint>

namespace flashmask::sm90::ptx {

/// fence.mbarrier_init: makes initialised mbarriers visible to the asynchronous proxy and the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// fence.proxy.async for shared memory: ordinary stores of this thread become visible to wgmma and bulk copies.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// fence.proxy.async for global memory: what this thread acquired becomes visible to its bulk copies.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// fence.proxy.async for all state spaces.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

/// ld.acquire.sys: a 64-bit progress word that another device or the host advances.
__device__ __forceinline__ std::uint64_t load_acquire_system(const std::uint64_t* address) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

/// st.release.sys: publishes everything this thread wrote or acquired before.
__device__ __forceinline__ void store_release_system(std::uint64_t* address, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

/// red.release.gpu add: counts a completion after everything this thread wrote or acquired before.
__device__ __forceinline__ void reduce_add_release(std::uint32_t* address, std::uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/// ld.volatile of a 32-bit word in global memory.
__device__ __forceinline__ std::uint32_t load_volatile(const std::uint32_t* address) {
  std::uint32_t value;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

}  // namespace flashmask::sm90::ptx
