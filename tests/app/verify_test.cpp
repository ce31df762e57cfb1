// A wrong result cannot pass: every kind of damage to an output is found and named.
#include "verify.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "flashmask/builders.hpp"
#include "flashmask/error.hpp"

namespace flashmask::app {
namespace {

constexpr double kBudget = 1e12;  // everything, at these sizes

bool mentions(const Verification& verification, const std::string& part) {
  for (const std::string& failure : verification.failures) {
    if (failure.find(part) != std::string::npos) return true;
  }
  return false;
}

/// 100 tokens: two documents and 10 dead tokens; 4:2 heads.
class VerifyTest : public ::testing::Test {
 protected:
  ColumnMask mask_ = masks::causal_document({1, 1, 100, 100}, std::vector<masks::Document>{{60, {}, {}}, {30, {}, {}}});
  TileMap map_ = TileMap::build(mask_, {64, 64});
  AttentionShape shape_{1, 100, 100, 4, 2, 16};
  Problem problem_{shape_, DType::bf16, mask_, map_, 1, 7};

  void SetUp() override {
    problem_.run_forward();
    problem_.run_backward();
  }
  Verification verify() {
    Verification verification;
    verify_everywhere(problem_, verification);
    verify_oracle(problem_, choose_sample(shape_, mask_, kBudget, 0), verification);
    verify_probe(problem_, 8, verification);
    return verification;
  }
};

TEST_F(VerifyTest, a_right_result_passes_with_all_five_outputs_compared) {
  const Verification verification = verify();
  EXPECT_TRUE(verification.passed()) << verification.failures[0];
  EXPECT_FALSE(verification.sampled);
  for (const OutputCheck& check : verification.outputs) {
    EXPECT_TRUE(check.checked);
    EXPECT_LE(check.error, check.tolerance);
    EXPECT_GT(check.tolerance, 0);
    EXPECT_LT(check.tolerance, 0.5) << "a tolerance that lets everything pass";
  }
}

TEST_F(VerifyTest, one_changed_element_of_any_output_is_named) {
  for (Tensor* tensor : {&problem_.out, &problem_.dq, &problem_.dk, &problem_.dv}) {
    const double value = tensor->at(0, 70, 1, 5);
    tensor->set(0, 70, 1, 5, value + 0.5);
    const Verification verification = verify();
    EXPECT_FALSE(verification.passed());
    EXPECT_TRUE(mentions(verification, " 70, element 5: got"))
        << (verification.failures.empty() ? "nothing" : verification.failures[0]);
    tensor->set(0, 70, 1, 5, value);
  }
  problem_.lse[2 * 100 + 33] += 1e-3F;
  EXPECT_TRUE(mentions(verify(), "lse at batch row 0, head 2, row 33"));
}

TEST_F(VerifyTest, poison_that_was_left_is_named) {
  for (Tensor* tensor : {&problem_.out, &problem_.dq, &problem_.dk, &problem_.dv}) {
    const double value = tensor->at(0, 99, 1, 15);
    tensor->set(0, 99, 1, 15, std::nan(""));
    Verification verification;
    verify_everywhere(problem_, verification);
    EXPECT_TRUE(mentions(verification, "99, element 15: nan where 0 is due"));
    tensor->set(0, 99, 1, 15, value);
  }
}

TEST_F(VerifyTest, dead_rows_and_columns_must_be_zero_and_live_lse_finite) {
  problem_.out.set(0, 95, 0, 0, 1e-6);
  problem_.dk.set(0, 91, 1, 2, 1e-6);
  problem_.lse[95] = 0;
  problem_.lse[100 + 3] = -std::numeric_limits<float>::infinity();
  Verification verification;
  verify_everywhere(problem_, verification);
  EXPECT_TRUE(mentions(verification, "out at batch row 0, head 0, row 95"));
  EXPECT_TRUE(mentions(verification, "dk at batch row 0, head 1, column 91"));
  EXPECT_TRUE(mentions(verification, "lse at batch row 0, head 0, row 95: 0 where -inf is due"));
}

TEST_F(VerifyTest, infinity_where_a_number_is_due_fails_everywhere_and_against_the_oracle) {
  problem_.dv.set(0, 4, 1, 2, std::numeric_limits<double>::infinity());
  const Verification verification = verify();
  EXPECT_TRUE(
      mentions(verification, "dv at batch row 0, head 1, column 4, element 2: inf where a finite value is due"));
  EXPECT_TRUE(std::isinf(verification.outputs[4].error));
}

TEST_F(VerifyTest, the_probe_finds_a_tile_map_of_another_mask) {
  // A map that lacks one tile: its mask's documents are 64 and 26, so tile (1, 0) is masked where rows 64.. see none.
  const ColumnMask other =
      masks::causal_document({1, 1, 100, 100}, std::vector<masks::Document>{{64, {}, {}}, {26, {}, {}}});
  const ColumnMask long_first = masks::causal({1, 1, 100, 100});
  const TileMap wrong = TileMap::build(other, {64, 64});
  Problem problem(shape_, DType::bf16, long_first, wrong, 1, 7);
  Verification verification;
  verify_probe(problem, 8, verification);
  EXPECT_FALSE(verification.passed());
  EXPECT_TRUE(mentions(verification, "count probe at batch row 0, head 0, row 64"))
      << (verification.failures.empty() ? "nothing" : verification.failures[0]);
}

TEST_F(VerifyTest, a_sample_holds_the_ends_and_says_that_it_is_one) {
  const Sample sample = choose_sample(shape_, mask_, 1e6, 3);
  EXPECT_FALSE(sample.everything);
  EXPECT_EQ(sample.rows.front(), 0);
  EXPECT_EQ(sample.rows.back(), 99);
  EXPECT_EQ(sample.columns.front(), 0);
  EXPECT_EQ(sample.columns.back(), 99);
  EXPECT_LT(sample.columns.size(), 100U);
  Verification verification;
  verify_oracle(problem_, sample, verification);
  EXPECT_TRUE(verification.passed());
  EXPECT_TRUE(verification.sampled);
  EXPECT_EQ(verification.coverage.rfind("a sample: ", 0), 0U);
}

TEST(Sample, a_long_mask_gives_up_its_most_seen_columns_and_keeps_rows) {
  const ColumnMask mask = masks::causal({1, 1, 65536, 65536});
  const AttentionShape shape{1, 65536, 65536, 8, 2, 128};
  const Sample sample = choose_sample(shape, mask, 2e10, 1);
  EXPECT_EQ(sample.query_heads.size(), 2U);
  EXPECT_EQ(sample.kv_heads.size(), 1U);
  EXPECT_GE(sample.rows.size(), 16U);
  ASSERT_FALSE(sample.columns.empty());
  EXPECT_EQ(sample.columns.back(), 65535);
  EXPECT_GT(sample.columns.front(), 50000) << "column 0 alone would cost the whole triangle";
}

TEST(Sample, empty_masks_have_nothing_to_sample) {
  const Sample sample = choose_sample({1, 0, 5, 2, 1, 16}, ColumnMask({1, 1, 0, 5}), 1e9, 0);
  EXPECT_TRUE(sample.everything);
  EXPECT_TRUE(sample.rows.empty());
}

TEST(Problem, work_counts_visible_cells_of_every_query_head_and_tiles_of_128) {
  const ColumnMask mask = masks::causal({1, 2, 256, 256});
  const AttentionShape shape{1, 256, 256, 4, 2, 64};
  const Work work = work_of(shape, mask);
  EXPECT_EQ(work.element, 4.0 * 64 * 4 * (256 * 257 / 2));
  EXPECT_EQ(work.tile, 4.0 * 64 * 4 * 3 * 128 * 128);
}

TEST(Problem, heads_and_dtypes_are_parsed_strictly) {
  AttentionShape shape;
  parse_heads("8:2", shape);
  EXPECT_EQ(shape.query_heads, 8);
  EXPECT_EQ(shape.kv_heads, 2);
  parse_heads("3", shape);
  EXPECT_EQ(shape.kv_heads, 3);
  for (const char* bad : {"", "0", "8:3", "8:", ":2", "8:2:1", "-4", "8 :2", "99999999999999999999"}) {
    EXPECT_THROW(parse_heads(bad, shape), Error) << bad;
  }
  EXPECT_THROW(parse_dtype("f64"), Error);
}

}  // namespace
}  // namespace flashmask::app
