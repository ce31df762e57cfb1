#include "format/packing_json.hpp"

#include "core/check.hpp"

namespace flashmask::format {
namespace {

masks::Document parse_document(const Json& value, const std::string& path) {
  if (value.object() == nullptr) return {integer_at(value, path, kTokenRange), {}, {}};  // a bare length
  Fields fields(value, path);
  masks::Document document;
  document.length = fields.integer("length", kTokenRange);
  document.prefix = fields.optional_integer("prefix", kTokenRange);
  if (const Json* answers = fields.optional("answers")) {
    for_each_at(*answers, fields.path_of("answers"), kMaxPieces, [&](const Json& element, const std::string& at) {
      document.answers.push_back(integer_at(element, at, kTokenRange));
    });
  }
  fields.finish();
  return document;
}

masks::TreeNode parse_node(const Json& value, const std::string& path) {
  Fields fields(value, path);
  const masks::TreeNode node{fields.optional_integer("parent", {0, kMaxPieces}), fields.integer("length", kTokenRange)};
  fields.finish();
  return node;
}

bool is_bare(const masks::Document& document) {
  return !document.prefix && document.answers.empty();
}

Json to_json_value(const masks::Document& document) {
  if (is_bare(document)) return document.length;
  Json value;
  value.set("length", document.length);
  if (document.prefix) value.set("prefix", *document.prefix);
  if (!document.answers.empty()) value.set("answers", Json::Integers(document.answers));
  return value;
}

}  // namespace

PackedRow parse_packed_row(const Json& value, const std::string& path) {
  Fields fields(value, path);
  PackedRow row;
  const Json* documents = fields.optional("documents");
  const Json* tree = fields.optional("tree");
  if (documents != nullptr && tree != nullptr) {
    core::fail(ErrorCode::io, "{}: give \"documents\" or \"tree\", not both", path);
  }
  if (documents != nullptr) {
    for_each_at(*documents, fields.path_of("documents"), kMaxPieces, [&](const Json& element, const std::string& at) {
      row.documents.push_back(parse_document(element, at));
    });
  }
  if (tree != nullptr) {
    for_each_at(*tree, fields.path_of("tree"), kMaxPieces,
                [&](const Json& element, const std::string& at) { row.tree.push_back(parse_node(element, at)); });
  }
  row.padding = fields.optional_integer("padding", kTokenRange).value_or(0);
  fields.finish();
  return row;
}

Json to_json_value(const PackedRow& row) {
  Json::Array elements;
  Json::Integers lengths;
  for (const masks::Document& document : row.documents) {
    elements.push_back(to_json_value(document));
    if (is_bare(document)) lengths.push_back(document.length);
  }
  for (const masks::TreeNode& node : row.tree) {
    Json& element = elements.emplace_back();
    if (node.parent) element.set("parent", *node.parent);
    element.set("length", node.length);
  }
  const bool bare = lengths.size() == elements.size();
  Json value;
  value.set(row.tree.empty() ? "documents" : "tree", bare ? Json(std::move(lengths)) : Json(std::move(elements)));
  if (row.padding > 0) value.set("padding", row.padding);
  return value;
}

std::vector<PackedRow> parse_packed_rows(const Json& value, const std::string& path) {
  std::vector<PackedRow> rows;
  std::size_t pieces = 0;
  for_each_at(value, path, kMaxBatch, [&](const Json& element, const std::string& at) {
    rows.push_back(parse_packed_row(element, at));
    pieces += rows.back().documents.size() + rows.back().tree.size();
    core::check(pieces <= static_cast<std::size_t>(kMaxPieces), "{}: more than {} documents and nodes", path,
                kMaxPieces);
  });
  return rows;
}

}  // namespace flashmask::format
