// 16-bit operands: the wgmma type of a config, and packing of pairs of floats.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "sm90/backward/config.hpp"
#include "sm90/ptx/math.cuh"
#include "sm90/ptx/wgmma.cuh"

namespace flashmask::sm90::backward_pass {

constexpr ptx::Operand operand_of(const BackwardConfig& config) {
  return config.bf16 ? ptx::Operand::bf16 : ptx::Operand::f16;
}

template <bool Bf16>
__device__ __forceinline__ std::uint32_t pack_pair_as(float low, float high) {
  return Bf16 ? ptx::pack_bf16(low, high) : ptx::pack_f16(low, high);
}

template <bool Bf16>
__device__ __forceinline__ float2 unpack_pair_as(std::uint32_t pair) {
  if constexpr (Bf16) {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000U)};
  } else {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  }
}

template <BackwardConfig C>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high) {
  return pack_pair_as<C.bf16>(low, high);
}

template <BackwardConfig C>
__device__ __forceinline__ float2 unpack_pair(std::uint32_t pair) {
  return unpack_pair_as<C.bf16>(pair);
}

}  // namespace flashmask::sm90::backward_pass
