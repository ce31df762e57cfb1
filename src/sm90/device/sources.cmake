if(FLASHMASK_HAS_CUDA)
  list(APPEND FLASHMASK_SM90_SOURCES device/query.cpp)
endif()
