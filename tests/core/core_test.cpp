#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "core/check.hpp"
#include "core/environment.hpp"
#include "core/parallel_for.hpp"

namespace flashmask::core {
namespace {

TEST(Check, error_carries_code_text_and_the_callers_place) {
  try {
    check(false, "rows must be >= 0, got {}", -3);
    FAIL() << "check(false) did not throw";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(e.what(), "rows must be >= 0, got -3");
    EXPECT_NE(std::string_view(e.location().file_name()).find("core_test.cpp"), std::string_view::npos);
  }
}

TEST(ParallelFor, visits_every_index_once) {
  for (const int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> seen(1000);
    parallel_for(1000, threads, [&](std::int64_t i, int worker) {
      EXPECT_LT(worker, threads);
      ++seen[static_cast<std::size_t>(i)];
    });
    for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
  }
}

TEST(ParallelFor, rethrows_the_first_failure) {
  EXPECT_THROW(parallel_for(100, 4, [](std::int64_t i, int) { check(i != 50, "index {}", i); }), Error);
}

TEST(ParallelFor, empty_range_calls_nothing) {
  parallel_for(0, 4, [](std::int64_t, int) { FAIL(); });
}

TEST(Environment, a_bad_integer_is_refused_by_name) {
  ::setenv("FLASHMASK_TEST_NUMBER", "12x", 1);
  EXPECT_THROW(environment_integer("FLASHMASK_TEST_NUMBER", 0, 100), Error);
  ::setenv("FLASHMASK_TEST_NUMBER", "12", 1);
  EXPECT_EQ(environment_integer("FLASHMASK_TEST_NUMBER", 0, 100), 12);
  ::unsetenv("FLASHMASK_TEST_NUMBER");
  EXPECT_EQ(environment_integer("FLASHMASK_TEST_NUMBER", 0, 100), std::nullopt);
}

}  // namespace
}  // namespace flashmask::core
