// The shared library is the rooms, linked whole; a CMake target must own at least one file.
#include "flashmask/version.hpp"

static_assert(FLASHMASK_VERSION_MAJOR >= 0);
