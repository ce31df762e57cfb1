list(APPEND FLASHMASK_SM90_SOURCES tile_map/host_map.cpp)
