#include "format/workload.hpp"

#include <filesystem>

#include "core/check.hpp"
#include "format/json.hpp"

namespace flashmask::format {
namespace {

using core::check;

/// Tokens of the documents of one batch row.
std::int64_t check_documents(const PackedRow& row, std::size_t batch, std::int64_t rows) {
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < row.documents.size(); ++d) {
    const masks::Document& document = row.documents[d];
    check(document.length >= 0 && document.length <= rows,
          "batch row {}, document {}: length {} is outside [0, rows = {}]", batch, d, document.length, rows);
    check(!document.prefix || (*document.prefix >= 0 && *document.prefix <= document.length),
          "batch row {}, document {}: prefix {} is outside [0, length = {}]", batch, d, document.prefix.value_or(0),
          document.length);
    std::int64_t parts = 0;
    for (const std::int64_t answer : document.answers) {
      check(answer >= 0 && answer <= document.length,
            "batch row {}, document {}: answer {} is outside [0, length = {}]", batch, d, answer, document.length);
      parts += answer;
    }
    if (!document.answers.empty()) {
      parts += document.prefix.value_or(document.length - parts);
      check(parts == document.length, "batch row {}, document {}: prefix + answers = {}, but its length is {}", batch,
            d, parts, document.length);
    }
    sum += document.length;
  }
  return sum;
}

std::int64_t check_tree(const PackedRow& row, std::size_t batch, std::int64_t rows) {
  std::int64_t sum = 0;
  std::vector<std::int64_t> path;  // the last node and its ancestors, outermost first
  for (std::size_t n = 0; n < row.tree.size(); ++n) {
    const masks::TreeNode& node = row.tree[n];
    check(node.length >= 0 && node.length <= rows, "batch row {}, node {}: length {} is outside [0, rows = {}]", batch,
          n, node.length, rows);
    while (!path.empty() && path.back() != node.parent) path.pop_back();
    check(!node.parent || !path.empty(),
          "batch row {}, node {}: parent {} is not the node before it or one of its ancestors; list nodes depth first",
          batch, n, node.parent.value_or(-1));
    path.push_back(static_cast<std::int64_t>(n));
    sum += node.length;
  }
  return sum;
}

}  // namespace

void validate(const Workload& workload) {
  const auto batch = static_cast<std::int64_t>(workload.batch.size());
  check(workload.rows >= 0, "rows must be >= 0, got {}", workload.rows);
  check(batch >= 1 && batch <= kMaxBatch, "batch must be in [1, {}], got {}", kMaxBatch, batch);
  check(workload.rows <= kMaxTokens / batch, "batch {} x rows {} is more than the {} tokens a workload may have", batch,
        workload.rows, kMaxTokens);
  std::size_t pieces = 0;
  bool documents = false, trees = false;
  for (std::size_t b = 0; b < workload.batch.size(); ++b) {
    const PackedRow& row = workload.batch[b];
    pieces += row.documents.size() + row.tree.size();
    check(pieces <= static_cast<std::size_t>(kMaxPieces), "more than {} documents and nodes", kMaxPieces);
    documents = documents || !row.documents.empty();
    trees = trees || !row.tree.empty();
    check(!documents || !trees, "batch row {}: a workload has documents or trees, not both", b);
    check(row.padding >= 0 && row.padding <= workload.rows, "batch row {}: padding {} is outside [0, rows = {}]", b,
          row.padding, workload.rows);
    const std::int64_t sum =
        row.padding + (row.tree.empty() ? check_documents(row, b, workload.rows) : check_tree(row, b, workload.rows));
    check(sum == workload.rows,
          "batch row {}: {} and padding add up to {} tokens, but rows = {}; name what is left over as \"padding\"", b,
          row.tree.empty() ? "documents" : "nodes", sum, workload.rows);
  }
}

masks::BuilderOptions builder_options(const Workload& workload) {
  masks::BuilderOptions options;
  options.rows = workload.rows;
  options.batch = static_cast<std::int64_t>(workload.batch.size());
  bool documents = false, tree = false;
  for (const PackedRow& row : workload.batch) {
    options.documents.lists.push_back(row.documents);
    options.trees.push_back(row.tree);
    documents = documents || !row.documents.empty();
    tree = tree || !row.tree.empty();
  }
  if (tree && !documents) options.documents.lists.clear();  // all padding is a packing too, not the default one
  if (!tree) options.trees.clear();
  return options;
}

Workload load_workload(const std::string& spec_or_file, const GeneratorOptions& options) {
  if (is_generator(spec_or_file)) return generate(spec_or_file, options);
  std::error_code unreadable;
  if (spec_or_file.find('/') == std::string::npos && spec_or_file.find(".json") == std::string::npos &&
      !std::filesystem::exists(spec_or_file, unreadable)) {
    return generate(spec_or_file, options);  // looks like a spec: let the error list the forms
  }
  Workload workload = parse_workload(read_file(spec_or_file), spec_or_file);
  check(options.rows == 0 || options.rows == workload.rows, "{} has rows = {}, but rows = {} is asked for",
        spec_or_file, workload.rows, options.rows);
  check(options.batch == 1 || options.batch == static_cast<std::int64_t>(workload.batch.size()),
        "{} has {} batch rows, but batch = {} is asked for", spec_or_file, workload.batch.size(), options.batch);
  return workload;
}

}  // namespace flashmask::format
