list(APPEND FLASHMASK_SM90_SOURCES tile_map/host_map.cpp tile_map/count_blocks.cpp)
if(FLASHMASK_HAS_CUDA)
  list(APPEND FLASHMASK_SM90_SOURCES tile_map/device_map.cpp tile_map/build.cu)
endif()
