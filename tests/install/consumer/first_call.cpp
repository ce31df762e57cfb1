#include <cmath>
#include <cstdio>
#include <vector>

#include "flashmask/attention.hpp"
#include "flashmask/mask.hpp"

// Two packed documents, causal, Q = 0: the LSE of a row is the logarithm of the number of columns it sees.
int main() {
  using namespace flashmask;
  constexpr std::int32_t rows = 8;
  constexpr std::int32_t dim = 16;
  ColumnMask mask({1, 1, rows, rows});
  for (std::int32_t column = 0; column < rows; ++column) {
    const std::int32_t document_end = column < 5 ? 5 : 8;
    mask.set(0, 0, column, {document_end, rows, 0, column});
  }
  std::vector<float> q(rows * dim, 0.0F), k(rows * dim, 1.0F), v(rows * dim, 2.0F), out(rows * dim), lse(rows);
  const auto strides = bshd_strides(rows, 1, dim);
  ForwardArguments call;
  call.shape = {1, rows, rows, 1, 1, dim};
  call.mask.mask = &mask;
  call.q = {q.data(), DType::f32, strides};
  call.k = {k.data(), DType::f32, strides};
  call.v = {v.data(), DType::f32, strides};
  call.out = {out.data(), DType::f32, strides};
  call.lse = lse.data();
  forward(call);
  std::printf("lse of row 6: %.6f, out: %.6f\n", static_cast<double>(lse[6]), static_cast<double>(out[6 * dim]));
  return std::abs(lse[6] - std::log(2.0F)) < 1e-6F && out[6 * dim] == 2.0F ? 0 : 1;
}
