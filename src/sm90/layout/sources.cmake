list(APPEND FLASHMASK_SM90_SOURCES layout/check_tensor.cpp)
if(FLASHMASK_HAS_CUDA)
  list(APPEND FLASHMASK_SM90_SOURCES layout/tensor_map.cpp)
endif()
