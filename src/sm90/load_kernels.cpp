#include "sm90/load_kernels.hpp"

#include <mutex>
#include <set>

#include "sm90/backward/launch.hpp"
#include "sm90/cuda_check.hpp"
#include "sm90/forward/launch.hpp"
#include "sm90/tile_map/build.hpp"

namespace flashmask::sm90 {

void load_kernels() {
  static std::mutex mutex;
  static std::set<int> devices;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  if (devices.contains(device)) return;
  tile_map::load_kernels();
  forward_pass::load_kernels();
  backward_pass::load_kernels();
  devices.insert(device);
}

}  // namespace flashmask::sm90
