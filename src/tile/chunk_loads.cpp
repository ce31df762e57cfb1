#include <algorithm>
#include <limits>

#include "core/check.hpp"
#include "flashmask/tile.hpp"
#include "tile/class_runs.hpp"

namespace flashmask {
namespace {

using tile::ceil_div;

[[noreturn]] void refuse_overflow(std::int64_t chunk_index) {
  core::fail(ErrorCode::invalid_argument,
             "load of chunk {} exceeds the 64-bit range: use smaller chunks, smaller costs or fewer mask heads",
             chunk_index);
}

/// a * x + b * y, refused where it leaves int64.
std::int64_t weighted(std::int64_t a, std::int64_t x, std::int64_t b, std::int64_t y, std::int64_t chunk_index) {
  std::int64_t ax = 0;
  std::int64_t by = 0;
  std::int64_t sum = 0;
  if (__builtin_mul_overflow(a, x, &ax) || __builtin_mul_overflow(b, y, &by) || __builtin_add_overflow(ax, by, &sum)) {
    refuse_overflow(chunk_index);
  }
  return sum;
}

std::vector<std::int64_t> cell_loads(const ColumnMask& mask, std::int64_t chunk) {
  const MaskShape& s = mask.shape();
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ceil_div(s.rows, chunk)), 0);
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::vector<std::int64_t> counts = mask.row_counts(batch, head);
      for (std::int64_t row = 0; row < s.rows; ++row) {
        std::int64_t& load = loads[static_cast<std::size_t>(row / chunk)];
        if (__builtin_add_overflow(load, counts[static_cast<std::size_t>(row)], &load)) refuse_overflow(row / chunk);
      }
    }
  }
  return loads;
}

/// How many tiles of a class begin (>= 0) or stop (< 0) being counted from a row tile on, over all column blocks.
struct ClassSteps {
  std::int64_t partial = 0;
  std::int64_t unmasked = 0;
};

std::vector<std::int64_t> tile_loads(const ColumnMask& mask, std::int64_t chunk, const LoadOptions& options) {
  const MaskShape& s = mask.shape();
  const tile::RowTiling tiling(s.rows, options.tile_shape.block_m, chunk);
  std::vector<ClassSteps> steps(static_cast<std::size_t>(tiling.count()) + 1);
  tile::ColumnBlockClassifier classifier(tiling, options.rule);
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const tile::CanonicalColumns columns(mask, batch, head);
      for (std::int64_t begin = 0; begin < s.columns; begin += options.tile_shape.block_n) {
        const std::int64_t end = std::min(begin + options.tile_shape.block_n, s.columns);
        for (const TileRun& run : classifier.classify(columns, begin, end)) {
          if (run.tile_class == TileClass::masked) continue;
          const auto member = run.tile_class == TileClass::partial ? &ClassSteps::partial : &ClassSteps::unmasked;
          ++(steps[static_cast<std::size_t>(run.first)].*member);
          --(steps[static_cast<std::size_t>(run.first + run.count)].*member);
        }
      }
    }
  }
  const std::size_t chunks = static_cast<std::size_t>(ceil_div(s.rows, chunk));
  std::vector<ClassSteps> counts(chunks);
  ClassSteps now;
  for (std::int64_t t = 0; t < tiling.count(); ++t) {
    now.partial += steps[static_cast<std::size_t>(t)].partial;
    now.unmasked += steps[static_cast<std::size_t>(t)].unmasked;
    ClassSteps& sum = counts[static_cast<std::size_t>(tiling.chunk_of(t))];
    sum.partial += now.partial;
    sum.unmasked += now.unmasked;
  }
  std::vector<std::int64_t> loads(chunks);
  for (std::size_t c = 0; c < chunks; ++c) {
    loads[c] = weighted(options.costs.partial, counts[c].partial, options.costs.unmasked, counts[c].unmasked,
                        static_cast<std::int64_t>(c));
  }
  return loads;
}

}  // namespace

std::vector<std::int64_t> chunk_loads(const ColumnMask& mask, std::int64_t chunk, const LoadOptions& options) {
  core::check(chunk >= 1, "chunk is {} rows: it must be at least 1", chunk);
  core::check(options.tile_shape.block_m > 0 && options.tile_shape.block_n > 0,
              "planning tile is {} x {} (block_m x block_n): both must be positive, e.g. 128 x 128",
              options.tile_shape.block_m, options.tile_shape.block_n);
  core::check(options.costs.partial >= 0 && options.costs.unmasked >= 0,
              "tile costs are partial {} and unmasked {}: they must not be negative", options.costs.partial,
              options.costs.unmasked);
  return options.unit == LoadUnit::cells ? cell_loads(mask, chunk) : tile_loads(mask, chunk, options);
}

}  // namespace flashmask
