#include "cpu/accumulate.hpp"

#include <algorithm>
#include <array>

namespace flashmask::cpu {
namespace {

bool is_hidden(const Piece& piece, Lanes lanes, std::int64_t position, std::int64_t lane) {
  const std::int64_t column = lanes == Lanes::rows ? position : lane;
  const auto row = piece.first_row + static_cast<std::int32_t>(lanes == Lanes::rows ? lane : position);
  const Intervals& h = *piece.hidden;
  return (row >= h.lts[column] && row < h.lte[column]) || (row >= h.uts[column] && row < h.ute[column]);
}

}  // namespace

void accumulate(const Kernels& kernels, const Piece& piece, Lanes lanes, const Positions& tensor, std::int64_t head_dim,
                const float* weights, float* c, Buffer& clean) {
  if (piece.hidden == nullptr || kernels.all_finite(tensor.data, piece.count, head_dim, tensor.stride)) {
    kernels.multiply(head_dim, piece.lanes, piece.count, tensor.by_dim(), weights, c, true);
    return;
  }
  std::array<bool, kStrip> finite{};
  for (std::int64_t n = 0; n < piece.count; ++n) {
    const float* from = tensor.data + n * tensor.stride;
    float* to = clean.data() + n * head_dim;
    finite[static_cast<std::size_t>(n)] = kernels.all_finite(from, 1, head_dim, tensor.stride);
    if (finite[static_cast<std::size_t>(n)]) {
      std::copy_n(from, head_dim, to);
    } else {
      std::fill_n(to, head_dim, 0.0F);
    }
  }
  const Positions cleaned{clean.data(), head_dim};
  kernels.multiply(head_dim, piece.lanes, piece.count, cleaned.by_dim(), weights, c, true);
  for (std::int64_t n = 0; n < piece.count; ++n) {
    if (finite[static_cast<std::size_t>(n)]) continue;
    for (std::int64_t lane = 0; lane < piece.lanes; ++lane) {
      if (is_hidden(piece, lanes, n, lane)) continue;
      const float weight = weights[n * kStrip + lane];
      for (std::int64_t d = 0; d < head_dim; ++d) c[d * kStrip + lane] += tensor.data[n * tensor.stride + d] * weight;
    }
  }
}

}  // namespace flashmask::cpu
