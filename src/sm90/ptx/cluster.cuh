// Clusters of CTAs: ranks, shared memory of another CTA (state space shared::cluster), cluster-wide barriers.
#pragma once

#include <cstdint>

namespace flashmask::sm90::ptx {

/// %cluster_ctarank: which CTA of its cluster this is; 0 without a cluster.
__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// mapa: address in the cluster's window of what stands at `address` in CTA `rank`.
__device__ __forceinline__ std::uint32_t address_in(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

/// st.shared::cluster: one 32-bit word.
__device__ __forceinline__ void store_cluster_u32(std::uint32_t mapped, std::uint32_t value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(mapped), "r"(value) : "memory");
}

/// mbarrier.arrive.release.cluster: one arrival on a barrier of any CTA, after everything this thread wrote to the
/// cluster's shared memory. Costs a fence.
__device__ __forceinline__ void mbarrier_arrive_release_cluster(std::uint32_t mapped) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mapped) : "memory");
}

/// mbarrier.try_wait.parity with acquire at cluster scope: what other CTAs released is visible afterwards.
__device__ __forceinline__ bool mbarrier_try_wait_cluster(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// barrier.cluster: every thread of the cluster that has not exited arrives, then waits for all others.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// Shared memory of this CTA to that of another of the cluster; completes `bytes` on a barrier there. Both mapped
/// addresses are of the same CTA; addresses 16-byte aligned, bytes a multiple of 16.
__device__ __forceinline__ void bulk_copy_to_cta(std::uint32_t mapped_destination, std::uint32_t source,
                                                 std::uint32_t bytes, std::uint32_t mapped_barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   mapped_destination),
               "r"(source), "r"(bytes), "r"(mapped_barrier)
               : "memory");
}

}  // namespace flashmask::sm90::ptx
