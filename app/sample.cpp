#include "sample.hpp"

#include <algorithm>
#include <set>

#include "mask/random.hpp"

namespace flashmask::app {
namespace {

/// Floating point operations of the oracle a visible cell and element of head_dim: scores and outputs in both
/// precisions, and about four times as many for forward and all gradients together.
constexpr double kPerCell = 8, kPerCellOfEverything = 32;

/// Up to `count` of [0, size): both ends, their neighbours, then random ones; in that order, each once.
std::vector<std::int64_t> spread(std::int64_t size, std::int64_t count, std::uint64_t seed, std::int64_t stream) {
  std::vector<std::int64_t> chosen;
  std::set<std::int64_t> seen;
  const auto choose = [&](std::int64_t i) {
    if (i >= 0 && i < size && static_cast<std::int64_t>(chosen.size()) < count && seen.insert(i).second)
      chosen.push_back(i);
  };
  for (const std::int64_t i : {std::int64_t{0}, size - 1, std::int64_t{1}, size - 2}) choose(i);
  for (std::int64_t i = 0; static_cast<std::int64_t>(chosen.size()) < std::min(count, size); ++i) {
    choose(mask::draw_below(size, {seed, stream, 0, i}));
  }
  return chosen;
}

std::vector<std::int64_t> all_of(std::int64_t size) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < size; ++i) all.push_back(i);
  return all;
}

/// Operations for the gradients of one column of one query head: every row that sees it is computed whole.
class ColumnCost {
 public:
  ColumnCost(const ColumnMask& mask, std::int64_t batch, std::int64_t head) : mask_(mask), batch_(batch), head_(head) {
    double sum = 0;
    cells_before_.push_back(sum);
    for (const std::int64_t count : mask.row_counts(batch, head))
      cells_before_.push_back(sum += static_cast<double>(count));
  }
  [[nodiscard]] double cells(std::int64_t column) const {
    const HiddenRows c = canonical(mask_.at(batch_, head_, column), static_cast<std::int32_t>(mask_.shape().rows));
    return cells_before_.back() - between(c.lts, c.lte) - between(c.uts, c.ute);
  }

 private:
  [[nodiscard]] double between(std::int32_t start, std::int32_t end) const {
    return start < end ? cells_before_[static_cast<std::size_t>(end)] - cells_before_[static_cast<std::size_t>(start)]
                       : 0;
  }
  const ColumnMask& mask_;
  std::int64_t batch_, head_;
  std::vector<double> cells_before_;
};

/// Columns in the order of `candidates` while they fit the budget together; at least the cheapest.
std::vector<std::int64_t> affordable(const ColumnCost& cost, const std::vector<std::int64_t>& candidates, double cells,
                                     std::size_t count) {
  std::vector<std::int64_t> chosen;
  for (const std::int64_t column : candidates) {
    if (chosen.size() == count || cost.cells(column) > cells) continue;
    cells -= cost.cells(column);
    chosen.push_back(column);
  }
  if (chosen.empty() && !candidates.empty()) {
    chosen.push_back(*std::min_element(candidates.begin(), candidates.end(),
                                       [&](std::int64_t a, std::int64_t b) { return cost.cells(a) < cost.cells(b); }));
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace

Sample choose_sample(const AttentionShape& shape, const ColumnMask& mask, double budget, std::uint64_t seed) {
  constexpr std::int64_t kRows = 96, kColumns = 16, kCandidates = 256;
  const std::int64_t heads = shape.batch * shape.query_heads, group = shape.query_heads / shape.kv_heads;
  const auto dim = static_cast<double>(shape.head_dim);
  const double per_mask = static_cast<double>(shape.query_heads) / static_cast<double>(mask.shape().heads);
  const double cells = static_cast<double>(mask.visible_cells()) * per_mask;
  Sample sample;
  sample.everything = cells * dim * kPerCellOfEverything <= budget;
  if (sample.everything) {
    for (std::int64_t h = 0; h < heads; ++h)
      sample.query_heads.push_back({h / shape.query_heads, h % shape.query_heads});
    for (std::int64_t h = 0; h < shape.batch * shape.kv_heads; ++h) {
      sample.kv_heads.push_back({h / shape.kv_heads, h % shape.kv_heads});
    }
    sample.rows = all_of(shape.rows);
    sample.columns = all_of(shape.columns);
    return sample;
  }
  const std::int64_t first = mask::draw_below(heads, {seed, 1, 0, 0});
  sample.query_heads.push_back({first / shape.query_heads, first % shape.query_heads});
  if (heads > 1) {
    const std::int64_t second = (first + 1 + mask::draw_below(heads - 1, {seed, 1, 0, 1})) % heads;
    sample.query_heads.push_back({second / shape.query_heads, second % shape.query_heads});
  }
  const auto [batch, head] = sample.query_heads[0];
  sample.kv_heads.push_back({batch, head / group});
  const double per_row = cells / static_cast<double>(heads * shape.rows) * dim * kPerCellOfEverything;
  const auto rows = static_cast<std::int64_t>(std::clamp(budget / 4 / per_row, 16.0, static_cast<double>(kRows)));
  sample.rows = spread(shape.rows, rows, seed, 2);
  std::sort(sample.rows.begin(), sample.rows.end());
  const ColumnCost cost(mask, batch, head / (shape.query_heads / mask.shape().heads));
  sample.columns = affordable(cost, spread(shape.columns, kCandidates, seed, 3),
                              budget / (dim * kPerCell * static_cast<double>(group)), kColumns);
  return sample;
}

}  // namespace flashmask::app
