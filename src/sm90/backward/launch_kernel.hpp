// Launching a kernel, on its own or dependent on the one queued before it (programmatic dependent launch).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace flashmask::sm90::backward_pass {

/// Queues `kernel`. Dependent: it may begin before the kernel queued before it has ended, and waits for that one's
/// writes itself (ptx/grid.cuh).
template <typename... Arguments>
cudaError_t launch_kernel(void (*kernel)(Arguments...), unsigned blocks, unsigned threads, std::size_t shared_bytes,
                          cudaStream_t stream, bool dependent, Arguments... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace flashmask::sm90::backward_pass
