// Entries of a build with CUDA that need no GPU, and what they refuse.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "flashmask/error.hpp"
#include "flashmask/sm90.hpp"

namespace flashmask::sm90 {
namespace {

constexpr AttentionShape shape{2, 100, 300, 8, 2, 128};

std::string refusal_of_count(const AttentionShape& s, std::int64_t chunk_columns, std::int64_t chunk) {
  try {
    backward_complete_count(s, chunk_columns, chunk);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(CompleteCount, speaks_of_the_chunks_that_exist) {
  EXPECT_GT(backward_complete_count(shape, 128, 0), 0U);
  EXPECT_EQ(backward_complete_count(shape, 128, 1), backward_complete_count(shape, 128, 0));
  EXPECT_EQ(backward_complete_count(shape, 128, 2), backward_complete_count(shape, 128, 0));  // a ragged block
  EXPECT_EQ(backward_complete_count(shape, 2147483647, 0), 3 * backward_complete_count(shape, 128, 0));
}

TEST(CompleteCount, names_what_is_wrong) {
  const auto expect = [](const std::string& refusal, const std::string& part) {
    EXPECT_NE(refusal.find(part), std::string::npos) << "expected " << part << ", got: " << refusal;
  };
  expect(refusal_of_count(shape, 0, 0), "chunk_columns is 0");
  expect(refusal_of_count(shape, std::int64_t{1} << 31, 0), "chunk_columns is 2147483648");
  expect(refusal_of_count(shape, (std::int64_t{1} << 32) + 128, 0), "chunk_columns is 4294967424");
  expect(refusal_of_count(shape, 128, -1), "chunk is -1");
  expect(refusal_of_count(shape, 128, 3), "chunk is 3");
  AttentionShape bad = shape;
  bad.batch = -2;
  expect(refusal_of_count(bad, 128, 0), "shape.batch");
  bad = shape, bad.kv_heads = 3;
  expect(refusal_of_count(bad, 128, 0), "kv_heads");
  // Eight warps count each of 2^29 blocks: more than a 32-bit count holds.
  bad = {1 << 19, 1, 65536, 1, 1, 64};
  EXPECT_EQ(refusal_of_count(bad, 65536, 0), "");
  bad.batch = 1 << 20;
  expect(refusal_of_count(bad, 65536, 0), "more than 2^32");
}

}  // namespace
}  // namespace flashmask::sm90
