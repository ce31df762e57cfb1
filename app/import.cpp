// --import: masks of other libraries as plain JSON arrays (docs/command.md lists the shapes).
#include <fmt/format.h>

#include <array>
#include <functional>

#include "core/check.hpp"
#include "flashmask/imports.hpp"
#include "format/fields.hpp"
#include "format/mask_json.hpp"
#include "mask_request.hpp"

namespace flashmask::app {
namespace {

using core::check;
using format::Json;

/// A nested array of integers as one flat list and its extents, outermost first.
struct IntegerArray {
  static constexpr std::size_t kLevels = 4;
  std::vector<std::int64_t> values;
  std::array<std::int64_t, kLevels> extents{};
  std::size_t levels = 0;   ///< extents known so far
  bool has_leaves = false;  ///< whether `levels` is final
  std::size_t wanted = 0;   ///< extents that the format has; the outer ones beyond `levels` are 1
  std::string path;         ///< of the whole

  /// Where values[i] stands in the file, e.g. "mask.json[0][3]".
  [[nodiscard]] std::string place_of(std::size_t i) const {
    std::string place;
    auto left = static_cast<std::int64_t>(i);
    for (std::size_t level = wanted; level-- > wanted - levels;) {
      place = fmt::format("[{}]{}", left % extents[level], place);
      left /= extents[level];
    }
    return path + place;
  }
};

/// Refuses an array that mixes integers with something else, or holds neither integers nor arrays, naming the element
/// at fault: the first that is not as the first one.
void check_elements(const Json::Array& array, const std::string& path) {
  const auto nested = [](const Json& element) { return element.array() != nullptr || element.integers() != nullptr; };
  const auto legal = [&](const Json& element) { return element.integer() != nullptr || nested(element); };
  for (std::size_t i = 0; i < array.size(); ++i) {
    const Json& element = array[i];
    check(i > 0 || legal(element), "{}[0]: expected an integer or an array, got {}", path, element.kind());
    check(nested(element) == nested(array[0]) && legal(element), "{}[{}]: expected an {}, as element 0 is one, got {}",
          path, i, nested(array[0]) ? "array" : "integer", element.kind());
  }
}

void flatten(const Json& value, const std::string& path, std::size_t level, IntegerArray& out) {
  const Json::Integers* integers = value.integers();
  const Json::Array* array = value.array();
  check(integers != nullptr || array != nullptr, "{}: expected an array, got {}", path, value.kind());
  check(level < IntegerArray::kLevels, "{}: arrays nested deeper than {}", path, IntegerArray::kLevels);
  if (array != nullptr) check_elements(*array, path);
  const auto size = static_cast<std::int64_t>(integers != nullptr ? integers->size() : array->size());
  if (level == out.levels && !out.has_leaves) out.extents[out.levels++] = size;
  const bool leaf = level + 1 == out.levels;
  check(level < out.levels && (!out.has_leaves || leaf == (integers != nullptr)), "{}: arrays of different depth",
        path);
  check(size == out.extents[level], "{}: {} elements, but {} in an earlier array of this level", path, size,
        out.extents[level]);
  if (integers != nullptr) {
    out.has_leaves = true;
    out.values.insert(out.values.end(), integers->begin(), integers->end());
    return;
  }
  for (std::size_t i = 0; i < array->size(); ++i) flatten((*array)[i], fmt::format("{}[{}]", path, i), level + 1, out);
}

/// The content where `levels` nested arrays are expected; missing outer levels have extent 1.
IntegerArray integers_of(const Json& value, const std::string& path, std::size_t levels) {
  IntegerArray out;
  out.path = path;
  flatten(value, path, 0, out);
  check(out.levels <= levels, "{}: {} nested arrays, at most {} are expected", path, out.levels, levels);
  std::array<std::int64_t, IntegerArray::kLevels> extents;
  extents.fill(1);
  for (std::size_t i = 0; i < out.levels; ++i) extents[levels - out.levels + i] = out.extents[i];
  out.wanted = levels;
  out.extents = extents;
  return out;
}

std::vector<std::int32_t> int32_of(const IntegerArray& array) {
  std::vector<std::int32_t> out;
  for (const std::int64_t value : array.values) {
    check(value >= INT32_MIN && value <= INT32_MAX, "{}: {} is outside [-2147483648, 2147483647]",
          array.place_of(out.size()), value);
    out.push_back(static_cast<std::int32_t>(value));
  }
  return out;
}

struct Input {
  const Json& json;
  const std::string& path;
  bool causal;
};

ColumnMask cu_seqlens(const Input& in) {
  masks::InsideDocuments inside;
  inside.causal = in.causal;
  if (in.json.object() == nullptr) {
    const auto offsets = int32_of(integers_of(in.json, in.path, 1));
    return masks::from_cu_seqlens(offsets, offsets, inside);
  }
  format::Fields fields(in.json, in.path);
  const auto q = int32_of(integers_of(fields.required("q"), fields.path_of("q"), 1));
  const auto k = int32_of(integers_of(fields.required("k"), fields.path_of("k"), 1));
  if (const Json* causal = fields.optional("causal")) {
    check(causal->boolean() != nullptr, "{}: expected true or false, got {}", fields.path_of("causal"), causal->kind());
    check(!in.causal || *causal->boolean(), "{}: false, but --causal is given: leave one of them out",
          fields.path_of("causal"));
    inside.causal = *causal->boolean();
  }
  fields.finish();
  return masks::from_cu_seqlens(q, k, inside);
}

ColumnMask document_ids(const Input& in, masks::IdZero zero) {
  const IntegerArray ids = integers_of(in.json, in.path, 2);
  return masks::from_document_ids(ids.values, ids.extents[0], zero, {.causal = in.causal});
}

ColumnMask position_ids(const Input& in, masks::PositionRule rule) {
  const IntegerArray positions = integers_of(in.json, in.path, 2);
  return masks::from_position_ids(positions.values, positions.extents[0], rule, in.causal);
}

ColumnMask attention_mask(const Input& in) {
  const IntegerArray values = integers_of(in.json, in.path, 2);
  return masks::from_attention_mask(values.values, values.extents[0], in.causal);
}

ColumnMask dense(const Input& in) {
  const IntegerArray cells = integers_of(in.json, in.path, 4);
  std::vector<std::uint8_t> bytes;
  for (const std::int64_t cell : cells.values) {
    check(cell == 0 || cell == 1, "{}: a cell is 0 or 1, got {}", cells.place_of(bytes.size()), cell);
    bytes.push_back(static_cast<std::uint8_t>(cell));
  }
  return masks::from_dense({cells.extents[0], cells.extents[1], cells.extents[2], cells.extents[3]}, bytes);
}

ColumnMask startend_row_indices(const Input& in) {
  const IntegerArray values = integers_of(in.json, in.path, 4);
  const std::int64_t columns = values.extents[2];
  return masks::from_startend_row_indices({values.extents[0], values.extents[1], columns, columns}, in.causal,
                                          values.extents[3], int32_of(values));
}

struct Format {
  std::string_view name;
  std::function<ColumnMask(const Input&)> read;
};

const std::vector<Format>& formats() {
  using masks::IdZero;
  using masks::PositionRule;
  static const std::vector<Format> all = {
      {"cu_seqlens", cu_seqlens},
      {"document_ids", [](const Input& in) { return document_ids(in, IdZero::document); }},
      {"document_ids_zero_is_padding", [](const Input& in) { return document_ids(in, IdZero::padding); }},
      {"position_ids_start_at_zero", [](const Input& in) { return position_ids(in, PositionRule::starts_at_zero); }},
      {"position_ids_break", [](const Input& in) { return position_ids(in, PositionRule::breaks_consecution); }},
      {"attention_mask", attention_mask},
      {"dense", dense},
      {"startend_row_indices", startend_row_indices},
  };
  return all;
}

}  // namespace

std::string import_formats() {
  std::string names = "mask";
  for (const Format& format : formats()) names += fmt::format(", {}", format.name);
  return names;
}

ColumnMask import_mask(const std::string& file, const std::string& format, bool causal) {
  const std::string text = format::read_file(file);
  if (format == "mask") {
    check(!causal, "--causal is not used by --format mask: the file says what is visible; leave it out");
    return format::naming(file, [&] { return format::build_mask(format::parse_mask_description(text, file)); });
  }
  check(!causal || format != "dense",
        "--causal is not used by --format dense: the file says what is visible; leave it out");
  for (const Format& known : formats()) {
    if (known.name != format) continue;
    return format::naming(file, [&] {
      ColumnMask mask = known.read({format::parse_json(text, file), file, causal});
      return mask.canonicalise();
    });
  }
  core::fail(ErrorCode::invalid_argument, "--format {}: known are {}", format, import_formats());
}

}  // namespace flashmask::app
