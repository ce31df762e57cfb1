#include <algorithm>
#include <cstring>
#include <limits>

#include "core/check.hpp"
#include "flashmask/tile.hpp"
#include "tile/class_runs.hpp"

namespace flashmask {
namespace {

using tile::CanonicalColumns;
using tile::ceil_div;
using tile::ColumnBlockClassifier;
using tile::RowTiling;

/// A column block whose class becomes `tile_class` from a row block on.
struct ClassChange {
  std::int32_t column_block;
  TileClass tile_class;
};

/// The class changes of one (batch, mask head), grouped by row block (counting sort over the column runs).
class ChangesByRow {
 public:
  ChangesByRow(std::span<const TileRun> runs, std::span<const std::int64_t> offsets, std::int64_t row_blocks)
      : begin_(static_cast<std::size_t>(row_blocks) + 2, 0) {
    visit(runs, offsets, [this](std::int32_t row, ClassChange) { ++begin_[static_cast<std::size_t>(row) + 1]; });
    for (std::size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    changes_.resize(static_cast<std::size_t>(begin_.back()));
    std::vector<std::int64_t> next(begin_.begin(), begin_.end() - 1);
    visit(runs, offsets, [&](std::int32_t row, ClassChange change) {
      changes_[static_cast<std::size_t>(next[static_cast<std::size_t>(row)]++)] = change;
    });
  }
  [[nodiscard]] std::span<const ClassChange> at(std::int64_t row_block) const {
    const auto r = static_cast<std::size_t>(row_block);
    return std::span(changes_).subspan(static_cast<std::size_t>(begin_[r]),
                                       static_cast<std::size_t>(begin_[r + 1] - begin_[r]));
  }

 private:
  template <typename F>
  static void visit(std::span<const TileRun> runs, std::span<const std::int64_t> offsets, const F& f) {
    for (std::size_t j = 0; j + 1 < offsets.size(); ++j) {
      const auto column = static_cast<std::int32_t>(j);
      for (std::int64_t i = offsets[j]; i < offsets[j + 1]; ++i) {
        const TileRun& run = runs[static_cast<std::size_t>(i)];
        f(run.first, {column, run.tile_class});
        const bool next_follows =
            i + 1 < offsets[j + 1] && runs[static_cast<std::size_t>(i) + 1].first == run.first + run.count;
        if (!next_follows) f(run.first + run.count, {column, TileClass::masked});
      }
    }
  }

  std::vector<std::int64_t> begin_;
  std::vector<ClassChange> changes_;
};

/// Appends the runs of visible blocks of one row of classes.
void append_row_runs(const std::vector<TileClass>& classes, std::vector<TileRun>& runs) {
  const std::size_t size = classes.size();
  std::size_t j = 0;
  while (j < size) {
    std::uint64_t eight = 1;
    if (j + 8 <= size) std::memcpy(&eight, &classes[j], 8);
    if (eight == 0) {  // eight masked blocks at once: most of a sparse row
      j += 8;
      continue;
    }
    std::size_t end = j + 1;
    while (end < size && classes[end] == classes[j]) ++end;
    if (classes[j] != TileClass::masked) {
      runs.push_back({static_cast<std::int32_t>(j), static_cast<std::int32_t>(end - j), classes[j]});
    }
    j = end;
  }
}

std::int64_t cost_of(std::span<const TileRun> runs, const TileCosts& costs) {
  std::int64_t cost = 0;
  for (const TileRun& run : runs) {
    cost += run.count * (run.tile_class == TileClass::partial ? costs.partial : costs.unmasked);
  }
  return cost;
}

std::span<const TileRun> slice(const std::vector<TileRun>& runs, const std::vector<std::int64_t>& offsets,
                               std::int64_t index) {
  const auto i = static_cast<std::size_t>(index);
  return std::span(runs).subspan(static_cast<std::size_t>(offsets[i]),
                                 static_cast<std::size_t>(offsets[i + 1] - offsets[i]));
}

}  // namespace

TileMap TileMap::build(const ColumnMask& mask, TileShape shape, TileRule rule) {
  core::check(shape.block_m > 0 && shape.block_n > 0,
              "tile shape is {} x {} (block_m x block_n): both must be positive, e.g. 128 x 128", shape.block_m,
              shape.block_n);
  TileMap map;
  map.mask_shape_ = mask.shape();
  map.shape_ = shape;
  map.rule_ = rule;
  const RowTiling tiling(mask.shape().rows, shape.block_m);
  map.row_blocks_ = tiling.count();
  map.column_blocks_ = ceil_div(mask.shape().columns, shape.block_n);
  map.row_offsets_.push_back(0);
  map.column_offsets_.push_back(0);
  ColumnBlockClassifier classifier(tiling, rule);
  for (std::int64_t batch = 0; batch < mask.shape().batch; ++batch) {
    for (std::int64_t head = 0; head < mask.shape().heads; ++head) {
      map.append_columns(CanonicalColumns(mask, batch, head), classifier);
      map.append_rows();
    }
  }
  map.sort_heaviest_first();
  return map;
}

void TileMap::append_columns(const tile::CanonicalColumns& columns, tile::ColumnBlockClassifier& classifier) {
  TileCounts counts;
  for (std::int64_t block = 0; block < column_blocks_; ++block) {
    const std::int64_t begin = block * shape_.block_n;
    const std::int64_t end = std::min(begin + shape_.block_n, mask_shape_.columns);
    for (const TileRun& run : classifier.classify(columns, begin, end)) {
      if (run.tile_class == TileClass::masked) {
        counts.masked += run.count;
        continue;
      }
      (run.tile_class == TileClass::partial ? counts.partial : counts.unmasked) += run.count;
      column_runs_.push_back(run);
    }
    column_offsets_.push_back(static_cast<std::int64_t>(column_runs_.size()));
  }
  counts_.push_back(counts);
}

void TileMap::append_rows() {
  const auto own = std::span(column_offsets_).last(static_cast<std::size_t>(column_blocks_) + 1);
  const ChangesByRow changes(column_runs_, own, row_blocks_);
  std::vector<TileClass> classes(static_cast<std::size_t>(column_blocks_), TileClass::masked);
  for (std::int64_t row = 0; row < row_blocks_; ++row) {
    for (const ClassChange& change : changes.at(row)) {
      classes[static_cast<std::size_t>(change.column_block)] = change.tile_class;
    }
    append_row_runs(classes, row_runs_);
    row_offsets_.push_back(static_cast<std::int64_t>(row_runs_.size()));
  }
}

void TileMap::sort_heaviest_first() {
  std::vector<std::pair<std::int64_t, RowBlock>> by_cost;
  by_cost.reserve(row_offsets_.size() - 1);
  for (std::int64_t batch = 0; batch < mask_shape_.batch; ++batch) {
    for (std::int64_t head = 0; head < mask_shape_.heads; ++head) {
      for (std::int64_t block = 0; block < row_blocks_; ++block) {
        by_cost.push_back(
            {row_cost(batch, head, block),
             {static_cast<std::int32_t>(batch), static_cast<std::int32_t>(head), static_cast<std::int32_t>(block)}});
      }
    }
  }
  std::stable_sort(by_cost.begin(), by_cost.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  order_.reserve(by_cost.size());
  for (const auto& [cost, block] : by_cost) order_.push_back(block);
}

std::span<const TileRun> TileMap::row(std::int64_t batch, std::int64_t head, std::int64_t row_block) const {
  return slice(row_runs_, row_offsets_, (batch * mask_shape_.heads + head) * row_blocks_ + row_block);
}

std::span<const TileRun> TileMap::column(std::int64_t batch, std::int64_t head, std::int64_t column_block) const {
  return slice(column_runs_, column_offsets_, (batch * mask_shape_.heads + head) * column_blocks_ + column_block);
}

TileClass TileMap::at(std::int64_t batch, std::int64_t head, std::int64_t row_block, std::int64_t column_block) const {
  const auto runs = row(batch, head, row_block);
  const auto after = std::upper_bound(runs.begin(), runs.end(), column_block,
                                      [](std::int64_t block, const TileRun& run) { return block < run.first; });
  if (after == runs.begin()) return TileClass::masked;
  const TileRun& run = *(after - 1);
  return column_block < run.first + run.count ? run.tile_class : TileClass::masked;
}

TileCounts TileMap::counts() const {
  TileCounts total;
  for (const TileCounts& c : counts_) {
    total.masked += c.masked;
    total.partial += c.partial;
    total.unmasked += c.unmasked;
  }
  return total;
}

TileCounts TileMap::counts(std::int64_t batch, std::int64_t head) const {
  return counts_[static_cast<std::size_t>(batch * mask_shape_.heads + head)];
}

std::int64_t TileMap::row_cost(std::int64_t batch, std::int64_t head, std::int64_t row_block,
                               const TileCosts& costs) const {
  return cost_of(row(batch, head, row_block), costs);
}

}  // namespace flashmask
