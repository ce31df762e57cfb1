// Which GPU this process would run on, and whether the kernels can run there.
#pragma once

#include <string>

namespace flashmask::sm90 {

struct DeviceInfo {
  std::string name;    ///< "NVIDIA H200"
  std::string driver;  ///< its version as the system tells it, else the CUDA version it serves
};

/// The current device. Throws unsupported, saying what is missing and what to do, without a GPU of compute capability
/// 9.0.
DeviceInfo require_device();
/// The same without the description: some ten nanoseconds, legal under graph capture. What every entry that touches the
/// device asks first.
void require_hopper();

}  // namespace flashmask::sm90
