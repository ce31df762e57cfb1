// The passes of the CPU backward and what they share. dK/dV are column-stationary, dQ row-stationary: S and dP are
// computed twice, but every result is one chain of additions in a fixed order, so threads never change a bit.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/row_strips.hpp"
#include "cpu/tiled.hpp"

namespace flashmask::cpu {

/// One backward call.
struct BackwardCall {
  BackwardCall(const BackwardArguments& a, const Hooks& h);

  const BackwardArguments& arguments;
  const Hooks& hooks;
  const Kernels& kernels;
  MapOf map;
  Orders orders;
  int threads;
  float scale, scale_log2;
  /// Of every row, [batch][query_heads][rows]: log-sum-exp in the log2 domain (+infinity for a dead row, which makes
  /// its P zero), and rowsum(dO o O).
  std::vector<float> lse_log2, delta;

  [[nodiscard]] std::int64_t row_index(std::int64_t batch, std::int64_t query_head, std::int64_t row) const {
    return (batch * arguments.shape.query_heads + query_head) * arguments.shape.rows + row;
  }
};

/// Fills lse_log2 and delta.
void compute_row_constants(BackwardCall& call);
/// Writes dk and dv, and reports complete column blocks.
void compute_column_gradients(const BackwardCall& call);
/// Writes dq.
void compute_row_gradients(const BackwardCall& call);

}  // namespace flashmask::cpu
