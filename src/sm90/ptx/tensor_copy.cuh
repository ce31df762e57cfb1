// Tensor-map copies (cp.async.bulk.tensor): tiles of 2 to 5 dimensions, coordinates innermost first, in elements.
// Out-of-range elements read as zero and are not written.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace flashmask::sm90::ptx {

/// Brings the descriptor into the cache ahead of its first use.
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Tile from global to shared memory; completes its bytes on `barrier`.
__device__ __forceinline__ void tensor_load(std::uint32_t destination, const CUtensorMap* map, std::uint32_t barrier,
                                            std::int32_t c0, std::int32_t c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1)
      : "memory");
}

/// Tile from shared to global memory, in the current bulk group of this thread.
__device__ __forceinline__ void tensor_store(const CUtensorMap* map, std::uint32_t source, std::int32_t c0,
                                             std::int32_t c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(source),
               "r"(c0), "r"(c1)
               : "memory");
}

/// Tile from global to shared memory; completes its bytes on `barrier`.
__device__ __forceinline__ void tensor_load(std::uint32_t destination, const CUtensorMap* map, std::uint32_t barrier,
                                            std::int32_t c0, std::int32_t c1, std::int32_t c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

/// Tile from shared to global memory, in the current bulk group of this thread.
__device__ __forceinline__ void tensor_store(const CUtensorMap* map, std::uint32_t source, std::int32_t c0,
                                             std::int32_t c1, std::int32_t c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(source), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}

/// Tile from global to shared memory; completes its bytes on `barrier`.
__device__ __forceinline__ void tensor_load(std::uint32_t destination, const CUtensorMap* map, std::uint32_t barrier,
                                            std::int32_t c0, std::int32_t c1, std::int32_t c2, std::int32_t c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

/// Tile from shared to global memory, in the current bulk group of this thread.
__device__ __forceinline__ void tensor_store(const CUtensorMap* map, std::uint32_t source, std::int32_t c0,
                                             std::int32_t c1, std::int32_t c2, std::int32_t c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

/// Tile from global to shared memory; completes its bytes on `barrier`.
__device__ __forceinline__ void tensor_load(std::uint32_t destination, const CUtensorMap* map, std::uint32_t barrier,
                                            std::int32_t c0, std::int32_t c1, std::int32_t c2, std::int32_t c3,
                                            std::int32_t c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

/// Tile from shared to global memory, in the current bulk group of this thread.
__device__ __forceinline__ void tensor_store(const CUtensorMap* map, std::uint32_t source, std::int32_t c0,
                                             std::int32_t c1, std::int32_t c2, std::int32_t c3, std::int32_t c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
               "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

/// As tensor_load (4-D), into the same place of every CTA of the cluster that `cta_mask` names.
__device__ __forceinline__ void tensor_load_multicast(std::uint32_t destination, const CUtensorMap* map,
                                                      std::uint32_t barrier, std::uint16_t cta_mask, std::int32_t c0,
                                                      std::int32_t c1, std::int32_t c2, std::int32_t c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, "
      "%5, %6, %7}], [%2], %3;" ::"r"(destination),
      "l"(map), "r"(barrier), "h"(cta_mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

/// The same, 5-D.
__device__ __forceinline__ void tensor_load_multicast(std::uint32_t destination, const CUtensorMap* map,
                                                      std::uint32_t barrier, std::uint16_t cta_mask, std::int32_t c0,
                                                      std::int32_t c1, std::int32_t c2, std::int32_t c3,
                                                      std::int32_t c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, "
      "%5, %6, %7, %8}], [%2], %3;" ::"r"(destination),
      "l"(map), "r"(barrier), "h"(cta_mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

}  // namespace flashmask::sm90::ptx
