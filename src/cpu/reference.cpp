#include "cpu/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/dtype.hpp"
#include "core/element.hpp"
#include "core/parallel_for.hpp"

namespace flashmask::cpu::reference {
namespace {

/// One query head and its KV head as dense matrices of Real (double: the oracle; float: the naive computation).
template <typename Real>
struct Head {
  std::int64_t rows, columns, dim;
  Real scale;
  std::vector<Real> q, k, v, dout;
  const ColumnMask* mask;
  std::int64_t batch, mask_head;
  DType round_to;  // P, dS and results of the naive computation

  Head(const Problem& p, std::int64_t b, std::int64_t h)
      : rows(p.shape.rows),
        columns(p.shape.columns),
        dim(p.shape.head_dim),
        scale(static_cast<Real>(p.scale)),
        mask(p.mask),
        batch(b),
        mask_head(h / (p.shape.query_heads / p.mask->shape().heads)),
        round_to(p.q.dtype) {
    const std::int64_t kv_head = h / (p.shape.query_heads / p.shape.kv_heads);
    q = matrix(p.q, b, h, rows);
    k = matrix(p.k, b, kv_head, columns);
    v = matrix(p.v, b, kv_head, columns);
    if (p.dout.data != nullptr) dout = matrix(p.dout, b, h, rows);
  }

  std::vector<Real> matrix(const TensorView& t, std::int64_t b, std::int64_t h, std::int64_t count) const {
    std::vector<Real> m;
    m.reserve(static_cast<std::size_t>(count * dim));
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t d = 0; d < dim; ++d) m.push_back(static_cast<Real>(core::element(t, b, i, h, d)));
    }
    return m;
  }

  [[nodiscard]] Real rounded(Real x) const {
    if constexpr (std::is_same_v<Real, double>) return x;
    return static_cast<Real>(rounded_to(x, round_to));
  }
  [[nodiscard]] bool visible(std::int64_t i, std::int64_t j) const { return mask->visible(batch, mask_head, i, j); }
};

template <typename Real>
Real dot(const std::vector<Real>& a, std::int64_t i, const std::vector<Real>& b, std::int64_t j, std::int64_t dim) {
  Real sum = 0;
  for (std::int64_t d = 0; d < dim; ++d) {
    sum += a[static_cast<std::size_t>(i * dim + d)] * b[static_cast<std::size_t>(j * dim + d)];
  }
  return sum;
}

template <typename Real>
Real largest(const std::vector<Real>& a, std::int64_t i, std::int64_t dim) {
  Real most = 0;
  for (std::int64_t d = 0; d < dim; ++d) most = std::max(most, std::abs(a[static_cast<std::size_t>(i * dim + d)]));
  return most;
}

/// One query row: its scores, probabilities (0 where hidden), output and log-sum-exp.
template <typename Real>
struct Row {
  std::vector<Real> probability, out;
  Real lse = -std::numeric_limits<Real>::infinity();
  double score_magnitude = 0, out_magnitude = 0;
};

template <typename Real>
Row<Real> attend(const Head<Real>& head, std::int64_t i) {
  Row<Real> row;
  row.probability.assign(static_cast<std::size_t>(head.columns), 0);
  row.out.assign(static_cast<std::size_t>(head.dim), 0);
  Real highest = -std::numeric_limits<Real>::infinity();
  for (std::int64_t j = 0; j < head.columns; ++j) {
    if (!head.visible(i, j)) continue;
    Real& score = row.probability[static_cast<std::size_t>(j)];
    score = dot(head.q, i, head.k, j, head.dim) * head.scale;
    highest = std::max(highest, score);
    row.score_magnitude = std::max(row.score_magnitude, static_cast<double>(std::abs(score)));
  }
  if (highest == -std::numeric_limits<Real>::infinity()) return row;
  Real sum = 0;
  for (std::int64_t j = 0; j < head.columns; ++j) {
    if (!head.visible(i, j)) continue;
    Real& p = row.probability[static_cast<std::size_t>(j)];
    p = std::exp(p - highest);
    sum += p;
  }
  row.lse = highest + std::log(sum);
  for (std::int64_t j = 0; j < head.columns; ++j) {
    Real& p = row.probability[static_cast<std::size_t>(j)];
    if (!head.visible(i, j)) continue;
    p /= sum;
    for (std::int64_t d = 0; d < head.dim; ++d) {
      row.out[static_cast<std::size_t>(d)] += head.rounded(p) * head.v[static_cast<std::size_t>(j * head.dim + d)];
    }
    row.out_magnitude += static_cast<double>(p * largest(head.v, j, head.dim));
  }
  for (Real& x : row.out) x = head.rounded(x);
  return row;
}

/// What the gradient of a row needs from its forward.
template <typename Real>
struct RowState {
  std::vector<Real> probability;
  Real delta = 0;  // rowsum(dO o O)
  double score_magnitude = 0, delta_magnitude = 0, delta_deviation = 0;
};

template <typename Real>
RowState<Real> state_of(const Head<Real>& head, std::int64_t i) {
  Row<Real> row = attend(head, i);
  RowState<Real> state{std::move(row.probability), 0, row.score_magnitude, 0, 0};
  double squares = 0;  // of dO times the roundings of the stored O
  for (std::int64_t d = 0; d < head.dim; ++d) {
    const Real term = head.dout[static_cast<std::size_t>(i * head.dim + d)] * row.out[static_cast<std::size_t>(d)];
    state.delta += term;
    state.delta_magnitude += std::abs(static_cast<double>(term));
    const auto out = static_cast<double>(row.out[static_cast<std::size_t>(d)]);
    const double lost = static_cast<double>(head.dout[static_cast<std::size_t>(i * head.dim + d)]) *
                        (rounded_to(out, head.round_to) - out);
    squares += lost * lost;
  }
  state.delta_deviation = std::sqrt(squares);
  return state;
}

/// dS / scale of one cell, the size of its terms, and what the roundings of the stored O do to it.
template <typename Real>
struct Gradient {
  Real ds;
  double magnitude, stored_deviation;
};

template <typename Real>
Gradient<Real> score_gradient(const Head<Real>& head, const RowState<Real>& state, std::int64_t i, std::int64_t j) {
  const Real p = state.probability[static_cast<std::size_t>(j)];
  const Real dp = dot(head.dout, i, head.v, j, head.dim);
  double dp_magnitude = 0;
  for (std::int64_t d = 0; d < head.dim; ++d) {
    dp_magnitude += std::abs(static_cast<double>(head.dout[static_cast<std::size_t>(i * head.dim + d)] *
                                                 head.v[static_cast<std::size_t>(j * head.dim + d)]));
  }
  return {p * (dp - state.delta), static_cast<double>(p) * (dp_magnitude + state.delta_magnitude),
          static_cast<double>(p) * state.delta_deviation};
}

/// Sums over the terms of one result: of their absolute values, and of what the stored O's roundings do to them. The
/// cells of one row share their roundings, so there they add up; those of different rows are independent.
struct Terms {
  double all = 0, stored_row = 0, stored_squares = 0;

  template <typename Real>
  void add(const Gradient<Real>& g, double factor, double score_magnitude) {
    all += g.magnitude * std::abs(factor) * (1 + score_magnitude);
    stored_row += g.stored_deviation * std::abs(factor);
  }
  void end_row() {
    stored_squares += stored_row * stored_row;
    stored_row = 0;
  }
  void raise(Values& values) const {
    values.magnitude = std::max(values.magnitude, all);
    values.stored_deviation = std::max(values.stored_deviation, std::sqrt(stored_squares));
  }
};

template <typename Real>
RowValues forward_rows_as(const Problem& problem, std::int64_t b, std::int64_t h, std::span<const std::int64_t> rows,
                          int threads) {
  const Head<Real> head(problem, b, h);
  RowValues result;
  result.out.values.resize(rows.size() * static_cast<std::size_t>(head.dim));
  result.lse.values.resize(rows.size());
  std::vector<double> out_magnitude(rows.size()), score_magnitude(rows.size());
  core::parallel_for(static_cast<std::int64_t>(rows.size()), threads, [&](std::int64_t n, int) {
    const auto at = static_cast<std::size_t>(n);
    const Row<Real> row = attend(head, rows[at]);
    std::copy(row.out.begin(), row.out.end(), result.out.values.begin() + n * head.dim);
    result.lse.values[at] = row.lse;
    out_magnitude[at] = row.out_magnitude * (1 + row.score_magnitude);
    score_magnitude[at] = row.score_magnitude;
  });
  for (const double m : out_magnitude) result.out.magnitude = std::max(result.out.magnitude, m);
  for (const double m : score_magnitude) result.lse.magnitude = std::max(result.lse.magnitude, m);
  return result;
}

template <typename Real>
Values dq_rows_as(const Problem& problem, std::int64_t b, std::int64_t h, std::span<const std::int64_t> rows,
                  int threads) {
  const Head<Real> head(problem, b, h);
  Values result{std::vector<double>(rows.size() * static_cast<std::size_t>(head.dim)), 0, 0};
  std::vector<Terms> terms(rows.size());
  core::parallel_for(static_cast<std::int64_t>(rows.size()), threads, [&](std::int64_t n, int) {
    const std::int64_t i = rows[static_cast<std::size_t>(n)];
    const RowState<Real> state = state_of(head, i);
    std::vector<Real> dq(static_cast<std::size_t>(head.dim), 0);
    Terms& row_terms = terms[static_cast<std::size_t>(n)];
    for (std::int64_t j = 0; j < head.columns; ++j) {
      if (!head.visible(i, j)) continue;
      const Gradient<Real> g = score_gradient(head, state, i, j);
      row_terms.add(g, problem.scale * static_cast<double>(largest(head.k, j, head.dim)), state.score_magnitude);
      for (std::int64_t d = 0; d < head.dim; ++d) {
        dq[static_cast<std::size_t>(d)] += head.rounded(g.ds) * head.k[static_cast<std::size_t>(j * head.dim + d)];
      }
    }
    row_terms.end_row();
    for (std::int64_t d = 0; d < head.dim; ++d) {
      result.values[static_cast<std::size_t>(n * head.dim + d)] =
          head.rounded(dq[static_cast<std::size_t>(d)] * head.scale);
    }
  });
  for (const Terms& t : terms) t.raise(result);
  return result;
}

/// Adds one query head's share to the columns' gradients.
template <typename Real>
void add_head(const Head<Real>& head, std::span<const std::int64_t> columns, int threads, std::vector<Real>& dk,
              std::vector<Real>& dv, std::vector<Terms>& dk_terms, std::vector<Terms>& dv_terms) {
  const auto width = static_cast<std::int64_t>(columns.size());
  // Rows in slabs, so that all their probabilities need not be held at once.
  constexpr std::int64_t kSlab = 256;
  for (std::int64_t begin = 0; begin < head.rows; begin += kSlab) {
    const std::int64_t end = std::min(begin + kSlab, head.rows);
    std::vector<RowState<Real>> states(static_cast<std::size_t>(end - begin));
    core::parallel_for(end - begin, threads, [&](std::int64_t n, int) {
      const std::int64_t i = begin + n;
      for (const std::int64_t j : columns) {
        if (!head.visible(i, j)) continue;
        states[static_cast<std::size_t>(n)] = state_of(head, i);
        break;
      }
    });
    core::parallel_for(width, threads, [&](std::int64_t n, int) {
      const std::int64_t j = columns[static_cast<std::size_t>(n)];
      for (std::int64_t i = begin; i < end; ++i) {
        if (!head.visible(i, j)) continue;
        const RowState<Real>& state = states[static_cast<std::size_t>(i - begin)];
        const Real p = state.probability[static_cast<std::size_t>(j)];
        const Gradient<Real> g = score_gradient(head, state, i, j);
        for (std::int64_t d = 0; d < head.dim; ++d) {
          const auto cell = static_cast<std::size_t>(n * head.dim + d);
          dk[cell] += head.rounded(g.ds) * head.q[static_cast<std::size_t>(i * head.dim + d)];
          dv[cell] += head.rounded(p) * head.dout[static_cast<std::size_t>(i * head.dim + d)];
        }
        dk_terms[static_cast<std::size_t>(n)].add(g, head.scale * static_cast<double>(largest(head.q, i, head.dim)),
                                                  state.score_magnitude);
        dk_terms[static_cast<std::size_t>(n)].end_row();
        dv_terms[static_cast<std::size_t>(n)].all +=
            static_cast<double>(p * largest(head.dout, i, head.dim)) * (1 + state.score_magnitude);
      }
    });
  }
}

template <typename Real>
ColumnValues dkdv_columns_as(const Problem& problem, std::int64_t b, std::int64_t kv_head,
                             std::span<const std::int64_t> columns, int threads) {
  const std::size_t cells = columns.size() * static_cast<std::size_t>(problem.shape.head_dim);
  std::vector<Real> dk(cells, 0);
  std::vector<Real> dv(cells, 0);
  std::vector<Terms> dk_terms(columns.size());
  std::vector<Terms> dv_terms(columns.size());
  const std::int64_t group = problem.shape.query_heads / problem.shape.kv_heads;
  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    add_head(Head<Real>(problem, b, h), columns, threads, dk, dv, dk_terms, dv_terms);
  }
  const Real scale = static_cast<Real>(problem.scale);
  ColumnValues result;
  for (std::size_t n = 0; n < cells; ++n) {
    const bool exact = std::is_same_v<Real, double>;
    const double dk_value = static_cast<double>(dk[n] * scale);
    const double dv_value = static_cast<double>(dv[n]);
    result.dk.values.push_back(exact ? dk_value : rounded_to(dk_value, problem.q.dtype));
    result.dv.values.push_back(exact ? dv_value : rounded_to(dv_value, problem.q.dtype));
  }
  for (const Terms& t : dk_terms) t.raise(result.dk);
  for (const Terms& t : dv_terms) t.raise(result.dv);
  return result;
}

std::vector<std::int64_t> all(std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return indices;
}

/// Copies one head's [position][dim] into a [batch][position][heads][dim] tensor.
void place(const Values& head, Values& tensor, std::int64_t b, std::int64_t h, std::int64_t heads, std::int64_t count,
           std::int64_t dim) {
  tensor.magnitude = std::max(tensor.magnitude, head.magnitude);
  tensor.stored_deviation = std::max(tensor.stored_deviation, head.stored_deviation);
  for (std::int64_t i = 0; i < count; ++i) {
    std::copy_n(head.values.begin() + i * dim, dim, tensor.values.begin() + ((b * count + i) * heads + h) * dim);
  }
}

double default_scale(const std::optional<float>& scale, std::int64_t head_dim) {
  return scale ? static_cast<double>(*scale) : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

}  // namespace

double rounded_to(double value, DType dtype) {
  const auto x = static_cast<float>(value);
  switch (dtype) {
    case DType::f32:
      return x;
    case DType::f16:
      return core::f16_to_float(core::float_to_f16(x));
    case DType::bf16:
      return core::bf16_to_float(core::float_to_bf16(x));
  }
  return x;
}

Problem problem_of(const ForwardArguments& a) {
  return {a.shape, a.mask.mask, a.q, a.k, a.v, {}, default_scale(a.scale, a.shape.head_dim)};
}

Problem problem_of(const BackwardArguments& a) {
  return {a.shape, a.mask.mask, a.q, a.k, a.v, a.dout, default_scale(a.scale, a.shape.head_dim)};
}

RowValues forward_rows(const Problem& problem, std::int64_t batch, std::int64_t query_head,
                       std::span<const std::int64_t> rows, Precision precision, int threads) {
  return precision == Precision::float64 ? forward_rows_as<double>(problem, batch, query_head, rows, threads)
                                         : forward_rows_as<float>(problem, batch, query_head, rows, threads);
}

Values dq_rows(const Problem& problem, std::int64_t batch, std::int64_t query_head, std::span<const std::int64_t> rows,
               Precision precision, int threads) {
  return precision == Precision::float64 ? dq_rows_as<double>(problem, batch, query_head, rows, threads)
                                         : dq_rows_as<float>(problem, batch, query_head, rows, threads);
}

ColumnValues dkdv_columns(const Problem& problem, std::int64_t batch, std::int64_t kv_head,
                          std::span<const std::int64_t> columns, Precision precision, int threads) {
  return precision == Precision::float64 ? dkdv_columns_as<double>(problem, batch, kv_head, columns, threads)
                                         : dkdv_columns_as<float>(problem, batch, kv_head, columns, threads);
}

Forward forward(const Problem& problem, Precision precision, int threads) {
  const AttentionShape& s = problem.shape;
  Forward result;
  result.out.values.resize(static_cast<std::size_t>(s.batch * s.rows * s.query_heads * s.head_dim));
  const auto rows = all(s.rows);
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.query_heads; ++h) {
      const RowValues head = forward_rows(problem, b, h, rows, precision, threads);
      place(head.out, result.out, b, h, s.query_heads, s.rows, s.head_dim);
      result.lse.values.insert(result.lse.values.end(), head.lse.values.begin(), head.lse.values.end());
      result.lse.magnitude = std::max(result.lse.magnitude, head.lse.magnitude);
    }
  }
  return result;
}

Backward backward(const Problem& problem, Precision precision, int threads) {
  const AttentionShape& s = problem.shape;
  Backward result;
  result.dq.values.resize(static_cast<std::size_t>(s.batch * s.rows * s.query_heads * s.head_dim));
  result.dk.values.resize(static_cast<std::size_t>(s.batch * s.columns * s.kv_heads * s.head_dim));
  result.dv.values = result.dk.values;
  const auto rows = all(s.rows);
  const auto columns = all(s.columns);
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.query_heads; ++h) {
      place(dq_rows(problem, b, h, rows, precision, threads), result.dq, b, h, s.query_heads, s.rows, s.head_dim);
    }
    for (std::int64_t h = 0; h < s.kv_heads; ++h) {
      const ColumnValues head = dkdv_columns(problem, b, h, columns, precision, threads);
      place(head.dk, result.dk, b, h, s.kv_heads, s.columns, s.head_dim);
      place(head.dv, result.dv, b, h, s.kv_heads, s.columns, s.head_dim);
    }
  }
  return result;
}

}  // namespace flashmask::cpu::reference
