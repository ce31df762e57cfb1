#include "verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/tolerance.hpp"
#include "attention/uniform.hpp"
#include "cpu/reference.hpp"
#include "report.hpp"

namespace flashmask::app {
namespace {

namespace reference = cpu::reference;

enum Output { kOut, kLse, kDq, kDk, kDv };

/// Exact and naive values of one output over the sample, and what was computed.
struct Comparison {
  reference::Values exact, naive;
  std::vector<double> got;
  std::vector<std::string> places;  ///< of every group of `width` values
  std::int64_t width = 1;

  void append(const reference::Values& more_exact, const reference::Values& more_naive) {
    for (auto [to, from] : {std::pair{&exact, &more_exact}, std::pair{&naive, &more_naive}}) {
      to->values.insert(to->values.end(), from->values.begin(), from->values.end());
      to->magnitude = std::max(to->magnitude, from->magnitude);
      to->stored_deviation = std::max(to->stored_deviation, from->stored_deviation);
    }
  }

  void conclude(Output output, DType stored, Verification& verification) const {
    const Deviation worst = deviation(got, exact.values);
    OutputCheck& check = verification.outputs[output];
    check = {worst.error, tolerance(exact, naive, stored), true};
    if (got.empty() || check.error <= check.tolerance) return;
    const auto group = static_cast<std::size_t>(worst.index / width);
    verification.failures.push_back(fmt::format(
        "{} at {}, element {}: got {:.9g}, float64 says {:.9g}: off by {:.3g}, allowed {:.3g}", kOutputs[output],
        places[group], worst.index % width, worst.got, worst.expected, check.error, check.tolerance));
  }
};

void append_tensor(Comparison& comparison, const Tensor& tensor, const AttentionShape& shape, const char* axis,
                   std::int64_t batch, std::int64_t head, const std::vector<std::int64_t>& positions) {
  comparison.width = shape.head_dim;
  for (const std::int64_t position : positions) {
    comparison.places.push_back(fmt::format("batch row {}, head {}, {} {}", batch, head, axis, position));
    for (std::int64_t d = 0; d < shape.head_dim; ++d) comparison.got.push_back(tensor.at(batch, position, head, d));
  }
}

void conclude_probe(Output output, const uniform::Finding& worst, Verification& verification) {
  verification.probe[output] = {worst.error, worst.allowed, true};
  if (worst.passed()) return;
  const std::string place = fmt::format("batch row {}, head {}, {} {}", worst.batch, worst.head,
                                        output == kDk || output == kDv ? "column" : "row", worst.position);
  if (output == kLse) {
    verification.failures.push_back(fmt::format("count probe at {}: {:.3f} columns counted, the mask shows {:.0f}",
                                                place, std::exp(worst.got), std::exp(worst.expected)));
  } else {
    verification.failures.push_back(fmt::format(
        "probe of {} at {}, element {}: got {:.9g}, the closed form says {:.9g}: off by {:.3g}, allowed {:.3g}",
        kOutputs[output], place, worst.dim, worst.got, worst.expected, worst.error, worst.allowed));
  }
}

/// Checks that every element of a tensor is finite, and zero where `must_be_zero(batch, position, head)`.
template <typename MustBeZero>
void scan(const char* name, const char* axis, const Tensor& tensor, const std::array<std::int64_t, 4>& extents,
          MustBeZero must_be_zero, Verification& verification) {
  for (std::int64_t b = 0; b < extents[0]; ++b) {
    for (std::int64_t i = 0; i < extents[1]; ++i) {
      for (std::int64_t h = 0; h < extents[2]; ++h) {
        const bool zero = must_be_zero(b, i, h);
        for (std::int64_t d = 0; d < extents[3]; ++d) {
          const double value = tensor.at(b, i, h, d);
          if (std::isfinite(value) && (!zero || value == 0)) continue;
          verification.failures.push_back(
              fmt::format("{} at batch row {}, head {}, {} {}, element {}: {} where {} is due", name, b, h, axis, i, d,
                          value, zero ? "0" : "a finite value"));
          return;
        }
      }
    }
  }
}

/// Row counts of every (batch, mask head).
std::vector<std::vector<std::int64_t>> all_row_counts(const ColumnMask& mask) {
  std::vector<std::vector<std::int64_t>> counts;
  for (std::int64_t b = 0; b < mask.shape().batch; ++b) {
    for (std::int64_t h = 0; h < mask.shape().heads; ++h) counts.push_back(mask.row_counts(b, h));
  }
  return counts;
}

/// Columns that no row of any query head of a KV head sees, per (batch, KV head).
std::vector<std::vector<char>> dead_columns(const AttentionShape& shape, const ColumnMask& mask) {
  std::vector<std::vector<char>> dead;
  const std::int64_t group = shape.query_heads / shape.kv_heads, per_mask = shape.query_heads / mask.shape().heads;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.kv_heads; ++h) {
      auto& columns = dead.emplace_back(static_cast<std::size_t>(shape.columns), char{1});
      const std::int64_t first = h * group / per_mask, last = ((h + 1) * group - 1) / per_mask;
      for (std::int64_t m = first; m <= last; ++m) {
        for (std::int64_t j = 0; j < shape.columns; ++j) {
          const auto rows = static_cast<std::int32_t>(shape.rows);
          if (hidden_count(canonical(mask.at(b, m, j), rows)) < rows) columns[static_cast<std::size_t>(j)] = 0;
        }
      }
    }
  }
  return dead;
}

void verify_lse_places(const Problem& problem, const std::vector<std::vector<std::int64_t>>& counts,
                       Verification& verification) {
  const AttentionShape& s = problem.shape;
  const std::int64_t per_mask = s.query_heads / problem.mask.mask->shape().heads;
  std::size_t at = 0;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.query_heads; ++h) {
      const auto& row_counts = counts[static_cast<std::size_t>(b * problem.mask.mask->shape().heads + h / per_mask)];
      for (std::int64_t i = 0; i < s.rows; ++i, ++at) {
        const float lse = problem.lse[at];
        const bool dead = row_counts[static_cast<std::size_t>(i)] == 0;
        if (dead ? lse == -std::numeric_limits<float>::infinity() : std::isfinite(lse)) continue;
        verification.failures.push_back(fmt::format("lse at batch row {}, head {}, row {}: {} where {} is due", b, h, i,
                                                    lse, dead ? "-inf" : "a finite value"));
        return;
      }
    }
  }
}

}  // namespace

void verify_everywhere(const Problem& problem, Verification& verification) {
  const AttentionShape& s = problem.shape;
  const ColumnMask& mask = *problem.mask.mask;
  const auto counts = all_row_counts(mask);
  const auto dead = dead_columns(s, mask);
  const std::int64_t per_mask = s.query_heads / mask.shape().heads;
  const auto dead_row = [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    return counts[static_cast<std::size_t>(b * mask.shape().heads + h / per_mask)][static_cast<std::size_t>(i)] == 0;
  };
  const auto dead_column = [&](std::int64_t b, std::int64_t j, std::int64_t h) {
    return dead[static_cast<std::size_t>(b * s.kv_heads + h)][static_cast<std::size_t>(j)] != 0;
  };
  const std::array<std::int64_t, 4> rows{s.batch, s.rows, s.query_heads, s.head_dim};
  const std::array<std::int64_t, 4> columns{s.batch, s.columns, s.kv_heads, s.head_dim};
  scan("out", "row", problem.out, rows, dead_row, verification);
  verify_lse_places(problem, counts, verification);
  scan("dq", "row", problem.dq, rows, dead_row, verification);
  scan("dk", "column", problem.dk, columns, dead_column, verification);
  scan("dv", "column", problem.dv, columns, dead_column, verification);
}

void verify_oracle(Problem& problem, const Sample& sample, Verification& verification) {
  const AttentionShape& s = problem.shape;
  const reference::Problem oracle = reference::problem_of(problem.backward_arguments());
  Comparison out, lse, dq, dk, dv;
  Progress progress("verifying", static_cast<std::int64_t>(4 * sample.query_heads.size() + 2 * sample.kv_heads.size()));
  using reference::Precision;
  for (const auto& [batch, head] : sample.query_heads) {
    const auto exact = reference::forward_rows(oracle, batch, head, sample.rows, Precision::float64, problem.threads);
    progress.advance();
    const auto naive = reference::forward_rows(oracle, batch, head, sample.rows, Precision::input, problem.threads);
    progress.advance();
    out.append(exact.out, naive.out);
    lse.append(exact.lse, naive.lse);
    append_tensor(out, problem.out, s, "row", batch, head, sample.rows);
    for (const std::int64_t row : sample.rows) {
      lse.places.push_back(fmt::format("batch row {}, head {}, row {}", batch, head, row));
      lse.got.push_back(problem.lse[static_cast<std::size_t>((batch * s.query_heads + head) * s.rows + row)]);
    }
    const auto exact_dq = reference::dq_rows(oracle, batch, head, sample.rows, Precision::float64, problem.threads);
    progress.advance();
    dq.append(exact_dq, reference::dq_rows(oracle, batch, head, sample.rows, Precision::input, problem.threads));
    append_tensor(dq, problem.dq, s, "row", batch, head, sample.rows);
    progress.advance();
  }
  for (const auto& [batch, head] : sample.kv_heads) {
    const auto exact =
        reference::dkdv_columns(oracle, batch, head, sample.columns, Precision::float64, problem.threads);
    progress.advance();
    const auto naive = reference::dkdv_columns(oracle, batch, head, sample.columns, Precision::input, problem.threads);
    progress.advance();
    dk.append(exact.dk, naive.dk);
    dv.append(exact.dv, naive.dv);
    append_tensor(dk, problem.dk, s, "column", batch, head, sample.columns);
    append_tensor(dv, problem.dv, s, "column", batch, head, sample.columns);
  }
  const DType stored = problem.q.dtype();
  out.conclude(kOut, stored, verification);
  lse.conclude(kLse, DType::f32, verification);
  dq.conclude(kDq, stored, verification);
  dk.conclude(kDk, stored, verification);
  dv.conclude(kDv, stored, verification);
  verification.sampled = !sample.everything;
  verification.coverage =
      sample.everything
          ? std::string("every row and column of every head")
          : fmt::format("a sample: {} of {} rows in {} of {} heads, {} of {} columns in {} of {} KV heads",
                        sample.rows.size(), s.rows, sample.query_heads.size(), s.batch * s.query_heads,
                        sample.columns.size(), s.columns, sample.kv_heads.size(), s.batch * s.kv_heads);
}

void verify_probe(const Problem& problem, std::uint64_t seed, Verification& verification) {
  const auto run =
      [&](auto prepare,
          std::initializer_list<std::pair<Output, uniform::Finding (*)(const BackwardArguments&, DType)>> checks) {
        Problem probe(problem.shape, problem.q.dtype(), *problem.mask.mask, *problem.mask.map, problem.threads, seed);
        probe.forward_engine = problem.forward_engine;
        probe.backward_engine = problem.backward_engine;
        probe.weights = problem.weights;
        prepare(probe);
        probe.run_forward();
        probe.run_backward();
        for (const auto& [output, check] : checks)
          conclude_probe(output, check(probe.backward_arguments(), probe.weights), verification);
      };
  run([](Problem& probe) { probe.q.fill_zero(), probe.dout.keep_component(0); },
      {{kLse, uniform::check_lse}, {kOut, uniform::check_out}, {kDq, uniform::check_dq}});
  run([](Problem& probe) { probe.k.fill_zero(), probe.v.keep_component(0); },
      {{kDk, uniform::check_dk}, {kDv, uniform::check_dv}});
}

}  // namespace flashmask::app
