// The oracle: dense attention in three loops, float64, forward and backward. No tiles, no vectors, no cleverness.
//
// The same loops in float32, with P, dS and the results rounded to the tensors' dtype, are the "naive computation in
// the same precision" that tolerances are derived from (src/attention/tolerance.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashmask/attention.hpp"

namespace flashmask::cpu::reference {

enum class Precision : std::uint8_t {
  float64,  ///< the oracle
  input,    ///< float32 arithmetic; P, dS and results rounded to the dtype of q
};

/// Inputs of one attention call. dout is read by gradients alone.
struct Problem {
  AttentionShape shape;
  const ColumnMask* mask = nullptr;
  TensorView q, k, v, dout;
  double scale = 1;
};
Problem problem_of(const ForwardArguments& arguments);
Problem problem_of(const BackwardArguments& arguments);

/// Values and how badly they are conditioned (float64 only). `magnitude` is the largest sum of the absolute values of
/// the terms of one result, times 1 + the largest |score| of its rows (what a rounding error of a score does to P).
/// `stored_deviation` is what storing O, rounded, does to one result through rowsum(dO o O): the largest root of the
/// sum of squares over the elements (row i, d) that it depends on, of coefficient * dO[i][d] * (rounded O - O)[i][d].
struct Values {
  std::vector<double> values;
  double magnitude = 0;
  double stored_deviation = 0;
};
struct RowValues {
  Values out;  ///< [rows given][head_dim]
  Values lse;  ///< [rows given]
};
struct ColumnValues {
  Values dk, dv;  ///< [columns given][head_dim]
};

/// Samples of one head: the given query rows, or the given key columns (summed over the query heads of a KV head).
RowValues forward_rows(const Problem& problem, std::int64_t batch, std::int64_t query_head,
                       std::span<const std::int64_t> rows, Precision precision, int threads = 1);
Values dq_rows(const Problem& problem, std::int64_t batch, std::int64_t query_head, std::span<const std::int64_t> rows,
               Precision precision, int threads = 1);
ColumnValues dkdv_columns(const Problem& problem, std::int64_t batch, std::int64_t kv_head,
                          std::span<const std::int64_t> columns, Precision precision, int threads = 1);

/// Everything, contiguous: out, dq, dk, dv [batch][position][head][head_dim]; lse [batch][head][row].
struct Forward {
  Values out, lse;
};
struct Backward {
  Values dq, dk, dv;
};
Forward forward(const Problem& problem, Precision precision, int threads = 1);
Backward backward(const Problem& problem, Precision precision, int threads = 1);

/// `value` rounded to `dtype` and back.
double rounded_to(double value, DType dtype);

}  // namespace flashmask::cpu::reference
