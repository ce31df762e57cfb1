# One shared library with everything, the public headers, an exported CMake package and the command.
include(CMakePackageConfigHelpers)
get_property(flashmask_rooms GLOBAL PROPERTY FLASHMASK_ROOMS)

add_library(flashmask SHARED)
add_library(flashmask::flashmask ALIAS flashmask)
target_sources(flashmask PRIVATE ${PROJECT_SOURCE_DIR}/src/library.cpp)
foreach(room IN LISTS flashmask_rooms)
  # Every object of every room; the archive itself is linked only for what the room needs from outside.
  target_sources(flashmask PRIVATE $<TARGET_OBJECTS:${room}>)
  target_link_libraries(flashmask PRIVATE $<BUILD_INTERFACE:${room}>)
endforeach()
target_link_libraries(flashmask PRIVATE $<BUILD_INTERFACE:flashmask_options>)
target_include_directories(flashmask PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(flashmask PUBLIC cxx_std_20)
set_target_properties(flashmask PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

install(TARGETS flashmask EXPORT flashmaskTargets)
install(DIRECTORY include/flashmask DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET flashmask_app)
  install(TARGETS flashmask_app)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT flashmaskTargets NAMESPACE flashmask:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/flashmask)
file(WRITE ${PROJECT_BINARY_DIR}/flashmaskConfig.cmake "include(\"\${CMAKE_CURRENT_LIST_DIR}/flashmaskTargets.cmake\")\n")
write_basic_package_version_file(${PROJECT_BINARY_DIR}/flashmaskConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/flashmaskConfig.cmake ${PROJECT_BINARY_DIR}/flashmaskConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/flashmask)
