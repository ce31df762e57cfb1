// The closed forms of attention with uniform weights: right results pass, every kind of damage is found at its place.
#include "attention/uniform.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "cpu/reference.hpp"
#include "flashmask/builders.hpp"
#include "problem.hpp"

namespace flashmask::app {
namespace {

enum class Kind { rows, columns };  // Q = 0, or K = 0

struct Probe {
  TileMap map;
  Problem problem;

  Probe(const ColumnMask& mask, const AttentionShape& shape, DType dtype, Kind kind)
      : map(TileMap::build(mask, {64, 64})), problem(shape, dtype, mask, map, 2, 3) {
    if (kind == Kind::rows) {
      problem.q.fill_zero(), problem.dout.keep_component(0);
    } else {
      problem.k.fill_zero(), problem.v.keep_component(0);
    }
    problem.run_forward();
    problem.run_backward();
  }
};

void expect_passed(const char* name, const uniform::Finding& f) {
  EXPECT_TRUE(f.passed()) << name << " at batch row " << f.batch << ", head " << f.head << ", position " << f.position
                          << ", element " << f.dim << ": got " << f.got << ", closed form " << f.expected << ", off by "
                          << f.error << ", allowed " << f.allowed;
}

TEST(Uniform, every_builder_and_dtype_agrees_with_the_closed_forms) {
  masks::BuilderOptions options;
  options.rows = 190;
  options.batch = 2;
  options.mask_heads = 2;
  int index = 0;
  for (const auto& builder : masks::builder_names()) {
    const ColumnMask mask = masks::build(builder.name, options);
    const DType dtype = std::array{DType::f32, DType::f16, DType::bf16}[static_cast<std::size_t>(index++ % 3)];
    const AttentionShape shape{2, 190, 190, 4, 2, 20};
    SCOPED_TRACE(builder.name);
    Probe rows(mask, shape, dtype, Kind::rows);
    expect_passed("lse", uniform::check_lse(rows.problem.backward_arguments()));
    expect_passed("out", uniform::check_out(rows.problem.backward_arguments()));
    expect_passed("dq", uniform::check_dq(rows.problem.backward_arguments()));
    expect_passed("dv", uniform::check_dv(rows.problem.backward_arguments()));
    Probe columns(mask, shape, dtype, Kind::columns);
    expect_passed("out", uniform::check_out(columns.problem.backward_arguments()));
    expect_passed("dk", uniform::check_dk(columns.problem.backward_arguments()));
    expect_passed("dv", uniform::check_dv(columns.problem.backward_arguments()));
  }
}

TEST(Uniform, rectangles_and_dead_rows_agree_with_the_closed_forms) {
  for (const auto& [rows, columns] : {std::pair{33, 150}, std::pair{150, 33}}) {
    const ColumnMask mask = masks::causal({1, 1, rows, columns});
    const AttentionShape shape{1, rows, columns, 2, 1, 8};
    Probe by_rows(mask, shape, DType::bf16, Kind::rows);
    expect_passed("lse", uniform::check_lse(by_rows.problem.backward_arguments()));
    expect_passed("dq", uniform::check_dq(by_rows.problem.backward_arguments()));
    Probe by_columns(mask, shape, DType::bf16, Kind::columns);
    expect_passed("dk", uniform::check_dk(by_columns.problem.backward_arguments()));
  }
}

TEST(Uniform, a_wrong_element_is_found_at_its_place) {
  const ColumnMask mask = masks::causal({1, 1, 100, 100});
  const AttentionShape shape{1, 100, 100, 4, 2, 16};
  Probe rows(mask, shape, DType::f32, Kind::rows), columns(mask, shape, DType::f32, Kind::columns);
  struct Case {
    Probe* probe;
    Tensor* tensor;
    uniform::Finding (*check)(const BackwardArguments&, DType);
  };
  Problem& r = rows.problem;
  Problem& c = columns.problem;
  for (const Case& damage : {Case{&rows, &r.out, uniform::check_out}, Case{&rows, &r.dq, uniform::check_dq},
                             Case{&columns, &c.dk, uniform::check_dk}, Case{&columns, &c.dv, uniform::check_dv}}) {
    for (const double wrong : {1e-3, std::numeric_limits<double>::quiet_NaN()}) {
      const double value = damage.tensor->at(0, 50, 1, 7);
      damage.tensor->set(0, 50, 1, 7, value + wrong);
      const uniform::Finding found = damage.check(damage.probe->problem.backward_arguments(), DType::f32);
      EXPECT_FALSE(found.passed());
      EXPECT_EQ(found.position, 50);
      EXPECT_EQ(found.head, 1);
      EXPECT_EQ(found.dim, 7);
      damage.tensor->set(0, 50, 1, 7, value);
    }
  }
  r.lse[3 * 100 + 9] += 1e-4F;
  EXPECT_EQ(uniform::check_lse(r.backward_arguments()).position, 9);
}

/// A backward that rounds P and dS to the tensors' type, as tensor cores do: the naive reference in that precision.
void run_rounded_backward(Problem& problem) {
  namespace reference = cpu::reference;
  const BackwardArguments call = problem.backward_arguments();
  const reference::Backward result = reference::backward(reference::problem_of(call), reference::Precision::input, 2);
  for (const auto& [tensor, values] :
       {std::pair{&problem.dq, &result.dq}, {&problem.dk, &result.dk}, {&problem.dv, &result.dv}}) {
    std::size_t at = 0;
    const std::int64_t heads = tensor == &problem.dq ? call.shape.query_heads : call.shape.kv_heads;
    for (std::int64_t i = 0; i < call.shape.rows; ++i) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t d = 0; d < call.shape.head_dim; ++d) tensor->set(0, i, h, d, values->values[at++]);
      }
    }
  }
}

TEST(Uniform, rounded_weights_are_allowed_for_and_a_missing_tile_is_still_found) {
  const ColumnMask mask = masks::causal({1, 1, 600, 600});
  ColumnMask less = mask;  // rows 384 to 511 do not see columns 128 to 255
  for (std::int32_t j = 128; j < 256; ++j) less.set(0, 0, j, {384, 512, 0, j});
  const AttentionShape shape{1, 600, 600, 2, 1, 16};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(to_string(dtype));
    Probe rows(mask, shape, dtype, Kind::rows), columns(mask, shape, dtype, Kind::columns);
    run_rounded_backward(rows.problem), run_rounded_backward(columns.problem);
    const std::array<std::pair<Probe*, uniform::Finding (*)(const BackwardArguments&, DType)>, 3> checks{
        {{&rows, uniform::check_dq}, {&columns, uniform::check_dk}, {&columns, uniform::check_dv}}};
    int refused = 0;
    for (const auto& [probe, check] : checks) {
      BackwardArguments call = probe->problem.backward_arguments();
      expect_passed("rounded", check(call, dtype));
      refused += check(call, DType::f32).passed() ? 0 : 1;
      call.mask.mask = &less;
      EXPECT_FALSE(check(call, dtype).passed());
    }
    EXPECT_GT(refused, 0) << "without the allowance some gradient is refused";
  }
}

TEST(Uniform, one_cell_more_or_less_is_found_in_every_output) {
  const ColumnMask mask = masks::causal({1, 1, 100, 100});
  ColumnMask less = mask;
  less.set(0, 0, 40, {60, 61, 0, 40});  // row 60 does not see column 40 any more
  const AttentionShape shape{1, 100, 100, 1, 1, 8};
  Probe rows(mask, shape, DType::f32, Kind::rows), columns(mask, shape, DType::f32, Kind::columns);
  const auto found = [&](Probe& probe, uniform::Finding (*check)(const BackwardArguments&, DType)) {
    BackwardArguments call = probe.problem.backward_arguments();
    call.mask.mask = &less;
    const uniform::Finding finding = check(call, DType::f32);
    return finding.passed() ? -1 : finding.position;
  };
  EXPECT_EQ(found(rows, uniform::check_lse), 60);
  EXPECT_EQ(found(rows, uniform::check_out), 60);
  EXPECT_EQ(found(rows, uniform::check_dq), 60);
  EXPECT_EQ(found(columns, uniform::check_dk), 40);
  EXPECT_EQ(found(columns, uniform::check_dv), 40);
}

}  // namespace
}  // namespace flashmask::app
