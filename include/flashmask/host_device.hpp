// Marks a function that must mean the same on the host and on the device.
#pragma once

#if defined(__CUDACC__)
#define FLASHMASK_HOST_DEVICE __host__ __device__
#else
#define FLASHMASK_HOST_DEVICE
#endif
