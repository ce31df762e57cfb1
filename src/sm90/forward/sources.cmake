list(APPEND FLASHMASK_SM90_SOURCES forward/tiles.cpp)
if(FLASHMASK_HAS_CUDA)
  list(APPEND FLASHMASK_SM90_SOURCES forward/forward.cpp forward/device_mask.cpp)
  foreach(instance IN ITEMS d64_bf16 d64_f16 d128_bf16 d128_f16 d64_bf16_chunks d64_f16_chunks d128_bf16_chunks
                            d128_f16_chunks d128_bf16_n64 d128_f16_n64 d128_bf16_n64_chunks d128_f16_n64_chunks
                            d64_bf16_packed d64_f16_packed d128_bf16_packed d128_f16_packed d64_bf16_packed_chunks
                            d64_f16_packed_chunks d128_bf16_packed_chunks d128_f16_packed_chunks)
    list(APPEND FLASHMASK_SM90_SOURCES forward/instances/${instance}.cu)
  endforeach()
endif()
