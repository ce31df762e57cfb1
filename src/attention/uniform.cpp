#include "attention/uniform.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "attention/tolerance.hpp"
#include "core/element.hpp"
#include "core/parallel_for.hpp"

namespace flashmask::uniform {
namespace {

using core::element;

/// Rows [begin, end) that see a column, run by run.
template <typename Visit>
void visible_runs(const HiddenRows& c, std::int64_t rows, Visit visit) {
  std::int64_t at = 0;
  const auto skip = [&](std::int64_t start, std::int64_t end) {
    if (start >= end) return;
    if (at < start) visit(static_cast<std::size_t>(at), static_cast<std::size_t>(start));
    at = end;
  };
  skip(c.uts, c.ute);  // canonical: above the lower run
  skip(c.lts, c.lte);
  if (at < rows) visit(static_cast<std::size_t>(at), static_cast<std::size_t>(rows));
}

/// One query head of a call under its mask head.
struct Head {
  const BackwardArguments& call;
  std::int64_t batch, query_head, kv_head, mask_head;
  std::vector<std::int64_t> counts;  ///< visible columns of every row

  Head(const BackwardArguments& a, std::int64_t b, std::int64_t h)
      : call(a),
        batch(b),
        query_head(h),
        kv_head(h / (a.shape.query_heads / a.shape.kv_heads)),
        mask_head(h / (a.shape.query_heads / a.mask.mask->shape().heads)),
        counts(a.mask.mask->row_counts(b, mask_head)) {}

  [[nodiscard]] HiddenRows column(std::int64_t j) const {
    return canonical(call.mask.mask->at(batch, mask_head, j), static_cast<std::int32_t>(call.shape.rows));
  }
  [[nodiscard]] double row(const TensorView& t, std::int64_t i, std::int64_t d) const {
    return element(t, batch, i, query_head, d);
  }
  [[nodiscard]] double key(const TensorView& t, std::int64_t j, std::int64_t d) const {
    return element(t, batch, j, kv_head, d);
  }
};

/// A sum, and the sums of its terms' magnitudes and squares.
struct Sum {
  double value = 0, magnitude = 0, square = 0;
  Sum& operator+=(const Sum& more) {
    value += more.value, magnitude += more.magnitude, square += more.square;
    return *this;
  }
  friend Sum operator-(const Sum& a, const Sum& b) {
    return {a.value - b.value, a.magnitude - b.magnitude, a.square - b.square};
  }
};
Sum term_of(double value) {
  return {value, std::abs(value), value * value};
}

/// For every row the sum of term(j) over its visible columns.
std::vector<Sum> over_columns(const Head& head, const std::function<double(std::int64_t)>& term) {
  const std::int64_t rows = head.call.shape.rows;
  std::vector<Sum> sums(static_cast<std::size_t>(rows) + 1);  // differences first
  for (std::int64_t j = 0; j < head.call.shape.columns; ++j) {
    const Sum t = term_of(term(j));
    visible_runs(head.column(j), rows, [&](std::size_t begin, std::size_t end) {
      sums[begin] += t;
      sums[end] += Sum{} - t;
    });
  }
  for (std::size_t i = 1; i < sums.size(); ++i) sums[i] += sums[i - 1];
  return sums;
}

/// For every column the sum of term(i) / n_i over the rows that see it, added to `sums`.
void add_over_rows(const Head& head, const std::function<double(std::int64_t)>& term, std::vector<Sum>& sums) {
  const std::int64_t rows = head.call.shape.rows;
  std::vector<Sum> before(static_cast<std::size_t>(rows) + 1);
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    before[at + 1] = before[at];
    if (head.counts[at] > 0) before[at + 1] += term_of(term(i) / static_cast<double>(head.counts[at]));
  }
  for (std::int64_t j = 0; j < head.call.shape.columns; ++j) {
    visible_runs(head.column(j), rows, [&](std::size_t begin, std::size_t end) {
      sums[static_cast<std::size_t>(j)] += before[end] - before[begin];
    });
  }
}

/// Compares one element and keeps the worse finding.
struct Judge {
  Finding worst;

  void see(Finding finding) {
    const double distance = finding.got == finding.expected ? 0 : std::abs(finding.got - finding.expected);
    finding.error = std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
    // error / allowed, compared without dividing; an allowance of 0 demands equality
    const bool worse = finding.error * worst.allowed > worst.error * finding.allowed ||
                       (finding.error > finding.allowed && worst.passed());
    if (worst.batch < 0 || worse) worst = finding;
  }
};

double allowance(double expected, double magnitude, double terms, DType dtype) {
  return ulp(expected, dtype) + 0x1p-24 * (64 + 8 * std::sqrt(terms)) * magnitude;
}

/// Eight deviations of a sum whose weights are rounded to `type`: by half a unit in the last place where they are
/// normal numbers (`square` is the sum of the squared terms), and by half the smallest number where they are not
/// (`terms` weights meet factors of at most `largest`).
double rounded_weights(DType type, double square, double terms, double largest) {
  if (type == DType::f32) return 0;
  const double relative = 0.5 * ulp(1.0, type), smallest = 0.5 * ulp(0.0, type);
  return 8 * (relative * std::sqrt(std::max(0.0, square)) + smallest * std::sqrt(terms) * largest);
}

/// The largest magnitude of one component of a head's positions.
double largest_of(const TensorView& t, std::int64_t batch, std::int64_t positions, std::int64_t head, std::int64_t d) {
  double most = 0;
  for (std::int64_t i = 0; i < positions; ++i) most = std::max(most, std::abs(element(t, batch, i, head, d)));
  return most;
}

/// Runs check(batch, head, d, judge) for every head and component on the call's threads; the worst finding of all.
Finding worst_of(const BackwardArguments& call, std::int64_t heads,
                 const std::function<void(std::int64_t, std::int64_t, std::int64_t, Judge&)>& check) {
  const std::int64_t dims = call.shape.head_dim;
  const int threads = core::thread_count(call.threads);
  std::vector<Judge> judges(static_cast<std::size_t>(threads));
  core::parallel_for(call.shape.batch * heads * dims, threads, [&](std::int64_t n, int worker) {
    check(n / dims / heads, n / dims % heads, n % dims, judges[static_cast<std::size_t>(worker)]);
  });
  Judge all;
  for (const Judge& judge : judges) {
    if (judge.worst.batch >= 0) all.see(judge.worst);
  }
  return all.worst;
}

double scale_of(const BackwardArguments& call) {
  return call.scale ? static_cast<double>(*call.scale) : 1 / std::sqrt(static_cast<double>(call.shape.head_dim));
}

}  // namespace

Finding check_lse(const BackwardArguments& call, DType) {
  Judge judge;
  for (std::int64_t b = 0; b < call.shape.batch; ++b) {
    for (std::int64_t h = 0; h < call.shape.query_heads; ++h) {
      const Head head(call, b, h);
      for (std::int64_t i = 0; i < call.shape.rows; ++i) {
        const double expected = std::log(static_cast<double>(head.counts[static_cast<std::size_t>(i)]));
        const double allowed = std::isfinite(expected) ? 4 * ulp(std::max(1.0, expected), DType::f32) : 0;
        const double got = call.lse[(b * call.shape.query_heads + h) * call.shape.rows + i];
        judge.see({0, allowed, got, expected, b, h, i, 0});
      }
    }
  }
  return judge.worst;
}

Finding check_out(const BackwardArguments& call, DType) {
  return worst_of(call, call.shape.query_heads, [&](std::int64_t b, std::int64_t h, std::int64_t d, Judge& judge) {
    const Head head(call, b, h);
    const auto sums = over_columns(head, [&](std::int64_t j) { return head.key(call.v, j, d); });
    for (std::int64_t i = 0; i < call.shape.rows; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double n = std::max<double>(1, static_cast<double>(head.counts[at]));
      const bool dead = head.counts[at] == 0;
      const double expected = dead ? 0 : sums[at].value / n;
      const double allowed = dead ? 0 : allowance(expected, sums[at].magnitude / n, n, call.out.dtype);
      judge.see({0, allowed, head.row(call.out, i, d), expected, b, h, i, d});
    }
  });
}

Finding check_dv(const BackwardArguments& call, DType weights) {
  const std::int64_t group = call.shape.query_heads / call.shape.kv_heads;
  return worst_of(call, call.shape.kv_heads, [&](std::int64_t b, std::int64_t kv, std::int64_t d, Judge& judge) {
    std::vector<Sum> sums(static_cast<std::size_t>(call.shape.columns));
    double largest = 0;
    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const Head head(call, b, h);
      largest = std::max(largest, largest_of(call.dout, b, call.shape.rows, h, d));
      add_over_rows(
          head, [&](std::int64_t i) { return head.row(call.dout, i, d); }, sums);
    }
    const auto terms = static_cast<double>(group * call.shape.rows);
    for (std::int64_t j = 0; j < call.shape.columns; ++j) {
      const Sum& sum = sums[static_cast<std::size_t>(j)];
      const double allowed = allowance(sum.value, sum.magnitude, terms, call.dv.dtype) +
                             rounded_weights(weights, sum.square, terms, largest);
      judge.see({0, allowed, element(call.dv, b, j, kv, d), sum.value, b, kv, j, d});
    }
  });
}

Finding check_dq(const BackwardArguments& call, DType weights) {
  const double scale = scale_of(call);
  return worst_of(call, call.shape.query_heads, [&](std::int64_t b, std::int64_t h, std::int64_t d, Judge& judge) {
    const Head head(call, b, h);
    // dS_ij = (g_i / n_i) (V_j0 - O_i0), so dQ_i = scale (g_i / n_i) (sum V_j0 k_j - O_i0 sum k_j).
    const auto values =
        over_columns(head, [&](std::int64_t j) { return head.key(call.v, j, 0) * head.key(call.k, j, d); });
    const auto keys = over_columns(head, [&](std::int64_t j) { return head.key(call.k, j, d); });
    const double largest = scale * largest_of(call.k, b, call.shape.columns, head.kv_head, d);
    for (std::int64_t i = 0; i < call.shape.rows; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double n = std::max<double>(1, static_cast<double>(head.counts[at]));
      const double factor = head.counts[at] == 0 ? 0 : scale * head.row(call.dout, i, 0) / n;
      const double mean = head.row(call.out, i, 0);
      const double expected = factor * (values[at].value - mean * keys[at].value);
      const double magnitude = std::abs(factor) * (values[at].magnitude + std::abs(mean) * keys[at].magnitude);
      // (V - O)^2 <= 2 V^2 + 2 O^2
      const double square = 2 * factor * factor * (values[at].square + mean * mean * keys[at].square);
      const double allowed = allowance(expected, magnitude, n, call.dq.dtype) +
                             (head.counts[at] == 0 ? 0 : rounded_weights(weights, square, n, largest));
      judge.see({0, allowed, head.row(call.dq, i, d), expected, b, h, i, d});
    }
  });
}

Finding check_dk(const BackwardArguments& call, DType weights) {
  const double scale = scale_of(call);
  const std::int64_t group = call.shape.query_heads / call.shape.kv_heads;
  return worst_of(call, call.shape.kv_heads, [&](std::int64_t b, std::int64_t kv, std::int64_t d, Judge& judge) {
    // dS_ij = (dO_i0 / n_i) (V_j0 - O_i0), so dK_j = scale (V_j0 sum (dO_i0 / n_i) q_i - sum (dO_i0 O_i0 / n_i) q_i).
    std::vector<Sum> queries(static_cast<std::size_t>(call.shape.columns)), outputs = queries;
    double largest = 0;
    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const Head head(call, b, h);
      largest = std::max(largest, scale * largest_of(call.q, b, call.shape.rows, h, d));
      const auto query = [&](std::int64_t i) { return head.row(call.dout, i, 0) * head.row(call.q, i, d); };
      add_over_rows(head, query, queries);
      add_over_rows(
          head, [&](std::int64_t i) { return query(i) * head.row(call.out, i, 0); }, outputs);
    }
    const auto terms = static_cast<double>(group * call.shape.rows);
    for (std::int64_t j = 0; j < call.shape.columns; ++j) {
      const auto at = static_cast<std::size_t>(j);
      const double v = element(call.v, b, j, kv, 0);
      const double expected = scale * (v * queries[at].value - outputs[at].value);
      const double magnitude = scale * (std::abs(v) * queries[at].magnitude + outputs[at].magnitude);
      const double square = 2 * scale * scale * (v * v * queries[at].square + outputs[at].square);
      const double allowed =
          allowance(expected, magnitude, terms, call.dk.dtype) + rounded_weights(weights, square, terms, largest);
      judge.see({0, allowed, element(call.dk, b, j, kv, d), expected, b, kv, j, d});
    }
  });
}

}  // namespace flashmask::uniform
