#include "format/mask_json.hpp"

#include <algorithm>
#include <limits>

#include "core/check.hpp"
#include "format/packing_json.hpp"

namespace flashmask::format {
namespace {

using core::check;
using core::fail;

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMaxRows = std::numeric_limits<std::int32_t>::max();
constexpr Range kRows{0, kMaxRows};
constexpr Range kPositive{1, kMaxRows};

MaskShape parse_shape(Fields& fields) {
  MaskShape shape;
  shape.rows = fields.integer("rows", kRows);
  shape.columns = fields.optional_integer("columns", {0, kMaxMaskColumns}).value_or(shape.rows);
  shape.batch = fields.optional_integer("batch", {1, kMaxBatch}).value_or(1);
  shape.heads = fields.optional_integer("heads", {1, 65536}).value_or(1);
  // batch x heads is at most 2^28, so the product cannot overflow.
  check(shape.columns == 0 || shape.batch * shape.heads <= kMaxMaskColumns / shape.columns,
        "{}: batch {} x heads {} x columns {} is more than {}", fields.path(), shape.batch, shape.heads, shape.columns,
        kMaxMaskColumns);
  return shape;
}

/// A side of a window: a number of keys or "unbounded".
masks::WindowSide parse_side(const Json* value, const std::string& path, masks::WindowSide absent) {
  if (value == nullptr) return absent;
  if (value->string() != nullptr && *value->string() == "unbounded") return masks::WindowSide::unbounded();
  if (value->integer() == nullptr) {
    fail(ErrorCode::io, "{}: expected an integer or \"unbounded\", got {}", path, value->kind());
  }
  return masks::WindowSide::keys(integer_at(*value, path, kRows));
}

/// An array of arrays of exactly N integers.
template <std::size_t N, typename Visit>
void parse_tuples(const Json* value, const std::string& path, Visit visit) {
  if (value == nullptr) return;
  for_each_at(*value, path, kMaxPieces, [&](const Json& element, const std::string& at) {
    const Json::Integers* numbers = element.integers();
    if (numbers == nullptr || numbers->size() != N) fail(ErrorCode::io, "{}: expected an array of {} integers", at, N);
    for (std::size_t i = 0; i < N; ++i) integer_at(Json((*numbers)[i]), core::format("{}[{}]", at, i), kRows);
    visit(*numbers);
  });
}

void parse_batch_rows(Fields& fields, masks::BuilderOptions& options) {
  const Json* value = fields.optional("packing");
  if (value == nullptr) return;
  bool tree = false;
  for (const PackedRow& row : parse_packed_rows(*value, fields.path_of("packing"))) {
    if (row.padding != 0)
      fail(ErrorCode::io, "{}: padding follows from rows here; leave it out", fields.path_of("packing"));
    if (!row.tree.empty() && !row.documents.empty()) {
      fail(ErrorCode::io, "{}: give documents or a tree, not both", fields.path_of("packing"));
    }
    tree = tree || !row.tree.empty();
    options.documents.lists.push_back(row.documents);
    options.trees.push_back(row.tree);
  }
  if (tree) {
    options.documents.lists.clear();
  } else {
    options.trees.clear();
  }
}

/// Whether `builder` reads a member of BuilderOptions; whoever is unknown is refused by name when it is built.
bool reads(std::string_view builder, std::string_view option) {
  const auto names = masks::builder_names();
  const auto known = std::ranges::find(names, builder, &masks::BuilderName::name);
  return known == names.end() || std::ranges::find(known->options, option) != known->options.end();
}

/// Documents and trees share one key of the file.
std::string_view key_of(std::string_view option) {
  return option == "documents" || option == "trees" ? "packing" : option;
}

/// Refuses options that the builder has no use for.
void check_used(const Json& value, const std::string& path, const std::string& builder,
                const masks::BuilderOptions& options) {
  const auto names = masks::builder_names();
  const auto known = std::ranges::find(names, builder, &masks::BuilderName::name);
  if (known == names.end()) return;
  std::string read;
  for (const std::string_view option : known->options) (read += read.empty() ? "" : ", ") += key_of(option);
  if (read.empty()) read = "none";
  for (const auto& [key, unused] : *value.object()) {
    const bool used = std::ranges::any_of(known->options, [&](auto option) { return key_of(option) == key; });
    if (!used) fail(ErrorCode::io, "{}: {}: builder {} has no use for it; it reads {}", path, key, builder, read);
  }
  check(options.trees.empty() || reads(builder, "trees"), "{}: packing: builder {} takes documents, not trees", path,
        builder);
  check(options.documents.lists.empty() || reads(builder, "documents"),
        "{}: packing: builder {} takes trees, not documents", path, builder);
}

masks::BuilderOptions parse_options(const Json* value, const std::string& path, const MaskShape& shape,
                                    const std::string& builder) {
  masks::BuilderOptions options;
  options.rows = shape.rows;
  options.columns = shape.columns;
  options.batch = shape.batch;
  options.mask_heads = shape.heads;
  if (value == nullptr) return options;
  Fields fields(*value, path);
  options.window = fields.optional_integer("window", kRows);
  options.global = fields.optional_integer("global", kRows).value_or(options.global);
  options.prefix = fields.optional_integer("prefix", kRows);
  options.seed = static_cast<std::uint64_t>(
      fields.optional_integer("seed", {0, std::numeric_limits<std::int64_t>::max()}).value_or(0));
  options.left = parse_side(fields.optional("left"), fields.path_of("left"), options.left);
  options.right = parse_side(fields.optional("right"), fields.path_of("right"), options.right);
  options.past = parse_side(fields.optional("past"), fields.path_of("past"), options.past);
  options.chunk = fields.optional_integer("chunk", kPositive);
  options.frame = fields.optional_integer("frame", kPositive);
  options.buckets = fields.optional_integer("buckets", kPositive).value_or(options.buckets);
  parse_tuples<4>(fields.optional("blocks"), fields.path_of("blocks"), [&](const Json::Integers& n) {
    options.blocks.push_back({n[0], n[1], n[2], n[3]});
  });
  parse_tuples<2>(fields.optional("segments"), fields.path_of("segments"), [&](const Json::Integers& n) {
    options.segments.push_back({n[0], n[1]});
  });
  parse_batch_rows(fields, options);
  fields.finish();
  check_used(*value, path, builder, options);
  return options;
}

Json to_json_value(masks::WindowSide side) {
  return side.is_unbounded() ? Json("unbounded") : Json(side.count());
}

Json packing_of(std::string_view builder, const masks::BuilderOptions& options) {
  Json::Array rows;
  if (reads(builder, "documents")) {
    for (const auto& documents : options.documents.lists) rows.push_back(to_json_value(PackedRow{documents, {}, 0}));
  }
  if (rows.empty() && reads(builder, "trees")) {
    for (const auto& tree : options.trees) rows.push_back(to_json_value(PackedRow{{}, tree, 0}));
  }
  return rows;
}

void set_header(Json& value, const MaskShape& shape) {
  value.set("format", "flashmask.mask").set("version", kVersion);
  value.set("rows", shape.rows).set("columns", shape.columns).set("batch", shape.batch).set("heads", shape.heads);
}

}  // namespace

MaskDescription parse_mask_description(std::string_view text, std::string_view source) {
  const Json value = parse_json(text, source);
  Fields fields(value, std::string(source));
  fields.header("flashmask.mask", kVersion);
  const MaskShape shape = parse_shape(fields);
  MaskDescription description;
  if (const auto builder = fields.optional_name("builder")) {
    description.builder = *builder;
    description.options = parse_options(fields.optional("options"), fields.path_of("options"), shape, *builder);
  } else {
    const auto size = static_cast<std::size_t>(shape.vector_size());
    auto lts = fields.int32_vector("lts", size);
    auto lte = fields.int32_vector("lte", size);
    auto uts = fields.int32_vector("uts", size);
    auto ute = fields.int32_vector("ute", size);
    description.vectors = ColumnMask(shape, std::move(lts), std::move(lte), std::move(uts), std::move(ute));
  }
  fields.finish();
  return description;
}

ColumnMask build_mask(const MaskDescription& description) {
  if (!description.vectors) return masks::build(description.builder, description.options);
  ColumnMask mask = *description.vectors;
  mask.canonicalise();
  return mask;
}

std::string to_json(const ColumnMask& mask) {
  Json value;
  set_header(value, mask.shape());
  const auto widen = [](std::span<const std::int32_t> vector) { return Json::Integers(vector.begin(), vector.end()); };
  value.set("lts", widen(mask.lts())).set("lte", widen(mask.lte()));
  value.set("uts", widen(mask.uts())).set("ute", widen(mask.ute()));
  return value.dump() + "\n";
}

std::string to_json(std::string_view builder, const masks::BuilderOptions& options) {
  const masks::BuilderOptions standard;
  Json fields = Json::Object();
  const auto set = [&](const char* key, bool changed, const auto& member) {
    if (changed && reads(builder, key)) fields.set(key, member());
  };
  set("window", options.window.has_value(), [&] { return *options.window; });
  set("global", options.global != standard.global, [&] { return options.global; });
  set("prefix", options.prefix.has_value(), [&] { return *options.prefix; });
  set("seed", options.seed != standard.seed, [&] { return static_cast<std::int64_t>(options.seed); });
  set("left", options.left != standard.left, [&] { return to_json_value(options.left); });
  set("right", options.right != standard.right, [&] { return to_json_value(options.right); });
  set("past", options.past != standard.past, [&] { return to_json_value(options.past); });
  set("chunk", options.chunk.has_value(), [&] { return *options.chunk; });
  set("frame", options.frame.has_value(), [&] { return *options.frame; });
  set("buckets", options.buckets != standard.buckets, [&] { return options.buckets; });
  set("blocks", !options.blocks.empty(), [&] {
    Json::Array blocks;
    for (const auto& b : options.blocks) {
      blocks.push_back(Json::Integers{b.column_begin, b.column_end, b.row_begin, b.row_end});
    }
    return blocks;
  });
  set("segments", !options.segments.empty(), [&] {
    Json::Array segments;
    for (const auto& s : options.segments) segments.push_back(Json::Integers{s.begin, s.length});
    return segments;
  });
  Json packing = packing_of(builder, options);
  if (!packing.array()->empty()) fields.set("packing", std::move(packing));
  Json value;
  set_header(value, {options.batch, options.mask_heads, options.rows, options.columns.value_or(options.rows)});
  value.set("builder", builder).set("options", std::move(fields));
  return value.dump() + "\n";
}

}  // namespace flashmask::format
