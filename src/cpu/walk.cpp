#include "cpu/walk.hpp"

#include <cmath>

#include "core/check.hpp"
#include "tile/class_runs.hpp"

namespace flashmask::cpu {

Orders::Orders(const Hooks& hooks, const AttentionShape& shape) {
  core::check(hooks.order.empty() || static_cast<std::int64_t>(hooks.order.size()) == shape.batch,
              "hooks.order has {} entries: give one per batch row ({}) or none", hooks.order.size(), shape.batch);
  core::check(hooks.column_counts.empty() || static_cast<std::int64_t>(hooks.column_counts.size()) == shape.batch,
              "hooks.column_counts has {} entries: give one per batch row ({}) or none", hooks.column_counts.size(),
              shape.batch);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const auto at = static_cast<std::size_t>(b);
    counts_.push_back(hooks.column_counts.empty() ? shape.columns : hooks.column_counts[at]);
    core::check(counts_.back() >= 0 && counts_.back() <= shape.columns,
                "hooks.column_counts[{}] is {}: it must lie in [0, {}]", b, counts_.back(), shape.columns);
    if (hooks.order.empty() || hooks.order[at].empty()) {
      ranges_.push_back({{0, shape.columns}});
      continue;
    }
    std::vector<ColumnRange> sorted = hooks.order[at];
    std::sort(sorted.begin(), sorted.end(), [](const ColumnRange& x, const ColumnRange& y) {
      return x.begin < y.begin || (x.begin == y.begin && x.end < y.end);
    });
    std::int64_t next = 0;
    for (const ColumnRange& range : sorted) {
      core::check(range.begin == next && range.end >= range.begin,
                  "hooks.order[{}] has the range [{}, {}) where one from {} is due: ranges must partition [0, {})", b,
                  range.begin, range.end, next, shape.columns);
      next = range.end;
    }
    core::check(next == shape.columns, "hooks.order[{}] ends at column {}: ranges must partition [0, {})", b, next,
                shape.columns);
    ranges_.push_back(hooks.order[at]);
  }
}

TileClass piece_class(const ColumnMask& mask, std::int64_t batch, std::int64_t head, const ColumnRange& rows,
                      const ColumnRange& columns) {
  const tile::CanonicalColumns canonical_columns(mask, batch, head);
  BlockBounds bounds = BlockBounds::none();
  for (std::int64_t j = columns.begin; j < columns.end; ++j) bounds.include(canonical_columns[j]);
  return classify(bounds, static_cast<std::int32_t>(rows.begin), static_cast<std::int32_t>(rows.end));
}

Strided strided(const TensorView& view, std::int64_t batch, std::int64_t position, std::int64_t head) {
  const std::int64_t offset = batch * view.strides[0] + position * view.strides[1] + head * view.strides[2];
  const auto* data = static_cast<const char*>(view.data) + offset * static_cast<std::int64_t>(size_of(view.dtype));
  return {const_cast<char*>(data), view.dtype, view.strides[1], view.strides[3]};  // NOLINT: also views outputs
}

Positions positions(const Kernels& kernels, const TensorView& view, std::int64_t batch, std::int64_t head,
                    std::int64_t begin, std::int64_t count, std::int64_t head_dim, float* copy) {
  const Strided source = strided(view, batch, begin, head);
  if (source.dtype == DType::f32 && source.column_stride == 1) {
    return {static_cast<const float*>(source.data), source.row_stride};
  }
  kernels.widen(source, count, head_dim, copy, head_dim);
  return {copy, head_dim};
}

float scale_of(const std::optional<float>& scale, const AttentionShape& shape) {
  return scale ? *scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
}

// 64 x 64 under the exact rule: as fine as the kernels' own pieces, and classifying is microseconds a thousand columns.
MapOf::MapOf(const MaskArgument& mask) : given_(mask.map) {
  if (given_ == nullptr) {
    constexpr auto kBlock = static_cast<std::int32_t>(kStrip);
    own_ = TileMap::build(*mask.mask, {kBlock, kBlock}, TileRule::exact);
  }
}

}  // namespace flashmask::cpu
