#include "sm90/device/query.hpp"

#include <cuda_runtime_api.h>

#include <fstream>

#include "core/check.hpp"
#include "sm90/cuda_check.hpp"

namespace flashmask::sm90 {
namespace {

std::string driver_version() {
  std::ifstream file("/sys/module/nvidia/version");
  if (std::string version; file >> version) return version;
  int version = 0;
  check_cuda(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  return core::format("for CUDA {}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

DeviceInfo require_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    core::fail(ErrorCode::unsupported,
               "the sm90 kernels need a Hopper GPU (H100, H200) and its driver, and CUDA finds none: {}; run where "
               "nvidia-smi lists one, or take the cpu backend",
               status == cudaSuccess ? "no device" : cudaGetErrorString(status));
  }
  int device = 0;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  if (properties.major != 9 || properties.minor != 0) {
    core::fail(ErrorCode::unsupported,
               "the sm90 kernels need a Hopper GPU (compute capability 9.0), and device {} is a {} of {}.{}; choose "
               "another with CUDA_VISIBLE_DEVICES, or take the cpu backend",
               device, properties.name, properties.major, properties.minor);
  }
  return {properties.name, driver_version()};
}

void require_hopper() {
  int device = 0, major = 0, minor = 0;
  const bool hopper = cudaGetDevice(&device) == cudaSuccess &&
                      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
                      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
                      major == 9 && minor == 0;
  if (!hopper) require_device();  // says what is missing
}

}  // namespace flashmask::sm90
