#include "sm90/load_kernels.hpp"

#include <map>
#include <mutex>

#include "sm90/backward/launch.hpp"
#include "sm90/cuda_check.hpp"
#include "sm90/forward/launch.hpp"
#include "sm90/tile_map/build.hpp"

namespace flashmask::sm90 {

void load_kernels() {
  static std::mutex mutex;
  static std::map<int, std::once_flag> devices;  // one may wait for long; the others do not wait for it
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  std::once_flag& once = [&]() -> std::once_flag& {
    const std::lock_guard lock(mutex);
    return devices[device];
  }();
  std::call_once(once, [] {
    tile_map::load_kernels();
    forward_pass::load_kernels();
    backward_pass::load_kernels();
  });
}

}  // namespace flashmask::sm90
