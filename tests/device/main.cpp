// Every device test needs a Hopper GPU: without one the program says so and fails, instead of every test on its own.
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>

#include "sm90/device/query.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests)) {
    try {
      flashmask::sm90::require_device();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
