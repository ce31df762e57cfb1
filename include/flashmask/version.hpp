// The version of the library; the C ABI carries its own number in flashmask.h.
#pragma once

#define FLASHMASK_VERSION_MAJOR 0
#define FLASHMASK_VERSION_MINOR 1
#define FLASHMASK_VERSION_PATCH 0
#define FLASHMASK_VERSION_STRING "0.1.0"
