// Builders that come with an order or positions: trees of shared prefixes and hashed sparsity.
#include <algorithm>
#include <numeric>

#include "core/check.hpp"
#include "flashmask/builders.hpp"
#include "mask/token_columns.hpp"

namespace flashmask::masks {
namespace {

/// A node on the token axis: its own tokens are [begin, begin + length), its subtree's [begin, subtree_end).
struct PlacedNode {
  std::int64_t begin = 0;
  std::int64_t subtree_end = 0;
  std::int64_t depth = 0;  ///< tokens of all its ancestors
};

std::vector<PlacedNode> place_nodes(std::span<const TreeNode> nodes) {
  std::vector<PlacedNode> placed(nodes.size());
  std::vector<std::size_t> open;  // the path from a root to the node before
  std::int64_t begin = 0;
  const auto close = [&] {
    placed[open.back()].subtree_end = begin;
    open.pop_back();
  };
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    core::check(nodes[n].length >= 0, "prefix_tree: node {}: length = {}: expected at least 0", n, nodes[n].length);
    while (!open.empty() && nodes[n].parent != static_cast<std::int64_t>(open.back())) close();
    core::check(
        !open.empty() || !nodes[n].parent,
        "prefix_tree: node {}: parent = {}: expected a node on the path to node {}; list the nodes depth first, "
        "each after its parent",
        n, nodes[n].parent.value_or(0), static_cast<std::int64_t>(n) - 1);
    placed[n].begin = begin;
    placed[n].depth = open.empty() ? 0 : placed[open.back()].depth + nodes[open.back()].length;
    open.push_back(n);
    begin += nodes[n].length;
  }
  while (!open.empty()) close();
  return placed;
}

}  // namespace

ColumnMask prefix_tree(const MaskShape& shape, std::span<const std::vector<TreeNode>> trees) {
  mask::check_rows_are_tokens("prefix_tree", shape);
  const std::int64_t lists = std::ssize(trees);
  core::check(lists == 1 || lists == shape.batch,
              "prefix_tree: {} node lists for batch = {}: expected one for all batch rows or one each", lists,
              shape.batch);
  std::vector<std::vector<std::int64_t>> ends;  // per list, the end of the subtree that owns each token
  for (const std::vector<TreeNode>& nodes : trees) {
    auto& end_of = ends.emplace_back();
    const std::vector<PlacedNode> placed = place_nodes(nodes);
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      core::check(placed[n].begin + nodes[n].length <= shape.columns,
                  "prefix_tree: node {} ends at token {}: expected at most columns = {}", n,
                  placed[n].begin + nodes[n].length, shape.columns);
      end_of.insert(end_of.end(), static_cast<std::size_t>(nodes[n].length), placed[n].subtree_end);
    }
  }
  return mask::fill(shape, [&](std::int64_t b, std::int64_t j) {
    const auto& end_of = ends[static_cast<std::size_t>(lists == 1 ? 0 : b)];
    if (j >= std::ssize(end_of)) return mask::dead_column();
    return mask::causal_column(j, end_of[static_cast<std::size_t>(j)], mask::end_token);
  });
}

std::vector<std::int64_t> prefix_tree_positions(std::span<const TreeNode> nodes) {
  const std::vector<PlacedNode> placed = place_nodes(nodes);
  std::vector<std::int64_t> positions;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    for (std::int64_t t = 0; t < nodes[n].length; ++t) positions.push_back(placed[n].depth + t);
  }
  return positions;
}

HashSparse hash_sparse(std::span<const std::int64_t> query_buckets, std::span<const std::int64_t> key_buckets) {
  const auto order = [](std::span<const std::int64_t> buckets) {
    std::vector<std::int64_t> sorted(buckets.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    std::ranges::stable_sort(sorted, {}, [&](std::int64_t i) { return buckets[static_cast<std::size_t>(i)]; });
    return sorted;
  };
  HashSparse result;
  result.row_order = order(query_buckets);
  result.column_order = order(key_buckets);
  const MaskShape shape{1, 1, std::ssize(query_buckets), std::ssize(key_buckets)};
  result.mask = ColumnMask(shape);
  const std::int64_t shift = shape.columns - shape.rows;
  std::size_t first = 0;  // first sorted row of the key's bucket that is not before the key
  for (std::size_t j = 0; j < key_buckets.size(); ++j) {
    const std::int64_t key = result.column_order[j];
    const std::int64_t bucket = key_buckets[static_cast<std::size_t>(key)];
    const auto bucket_of = [&](std::size_t row) {
      return query_buckets[static_cast<std::size_t>(result.row_order[row])];
    };
    const std::size_t rows = query_buckets.size();
    // Rows ascend by (bucket, position) as the keys do, so `first` only moves forward.
    while (first < rows &&
           (bucket_of(first) < bucket || (bucket_of(first) == bucket && result.row_order[first] + shift < key))) {
      ++first;
    }
    const auto end = std::ranges::upper_bound(
        result.row_order, bucket, {}, [&](std::int64_t row) { return query_buckets[static_cast<std::size_t>(row)]; });
    const HiddenRows hidden{static_cast<std::int32_t>(end - result.row_order.begin()),
                            static_cast<std::int32_t>(shape.rows), 0, static_cast<std::int32_t>(first)};
    result.mask.set(0, 0, static_cast<std::int64_t>(j), canonical(hidden, static_cast<std::int32_t>(shape.rows)));
  }
  return result;
}

}  // namespace flashmask::masks
