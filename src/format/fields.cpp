#include "format/fields.hpp"

#include <algorithm>
#include <limits>

#include "core/check.hpp"

namespace flashmask::format {

using core::fail;

namespace {
constexpr std::size_t kNameLength = 256;
}  // namespace

std::int64_t integer_at(const Json& value, const std::string& path, Range range) {
  const std::int64_t* integer = value.integer();
  if (integer == nullptr) {
    fail(ErrorCode::io, "{}: expected an integer in [{}, {}], got {}", path, range.low, range.high, value.kind());
  }
  if (*integer < range.low || *integer > range.high) {
    fail(ErrorCode::io, "{}: {} is outside [{}, {}]", path, *integer, range.low, range.high);
  }
  return *integer;
}

void for_each_at(const Json& value, const std::string& path, std::size_t limit,
                 const std::function<void(const Json&, const std::string&)>& visit) {
  const Json::Integers* integers = value.integers();
  const Json::Array* array = value.array();
  if (integers == nullptr && array == nullptr) fail(ErrorCode::io, "{}: expected an array, got {}", path, value.kind());
  const std::size_t size = integers != nullptr ? integers->size() : array->size();
  if (size > limit) fail(ErrorCode::io, "{}: {} elements, at most {} are allowed", path, size, limit);
  for (std::size_t i = 0; i < size; ++i) {
    const std::string element = core::format("{}[{}]", path, i);
    if (integers != nullptr) {
      visit(Json((*integers)[i]), element);
    } else {
      visit((*array)[i], element);
    }
  }
}

Fields::Fields(const Json& value, std::string path) : members_(value.object()), path_(std::move(path)) {
  if (members_ == nullptr) fail(ErrorCode::io, "{}: expected an object, got {}", path_, value.kind());
}

std::string Fields::path_of(std::string_view key) const {
  return core::format("{}: {}", path_, key);
}

const Json* Fields::optional(std::string_view key) {
  known_.emplace_back(key);
  for (const Json::Member& member : *members_) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

const Json& Fields::required(std::string_view key) {
  const Json* value = optional(key);
  if (value == nullptr) fail(ErrorCode::io, "{}: \"{}\" is missing", path_, key);
  return *value;
}

std::int64_t Fields::integer(std::string_view key, Range range) {
  return integer_at(required(key), path_of(key), range);
}

std::optional<std::int64_t> Fields::optional_integer(std::string_view key, Range range) {
  const Json* value = optional(key);
  if (value == nullptr) return std::nullopt;
  return integer_at(*value, path_of(key), range);
}

std::string Fields::string(std::string_view key) {
  const Json& value = required(key);
  if (value.string() == nullptr) fail(ErrorCode::io, "{}: expected a string, got {}", path_of(key), value.kind());
  return *value.string();
}

std::optional<std::string> Fields::optional_string(std::string_view key) {
  const Json* value = optional(key);
  if (value == nullptr) return std::nullopt;
  known_.pop_back();  // string() notes it again
  return string(key);
}

std::optional<std::string> Fields::optional_name(std::string_view key) {
  std::optional<std::string> name = optional_string(key);
  if (name) {
    const bool shown = std::all_of(name->begin(), name->end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (!shown || name->empty() || name->size() > kNameLength) {
      fail(ErrorCode::io, "{}: {}: a name has 1 to {} printable ASCII characters", path_of(key), printable(*name),
           kNameLength);
    }
  }
  return name;
}

std::vector<std::int32_t> Fields::int32_vector(std::string_view key, std::size_t size) {
  const Json& value = required(key);
  const Json::Integers* integers = value.integers();
  if (integers == nullptr) {
    fail(ErrorCode::io, "{}: expected an array of {} integers, got {}", path_of(key), size, value.kind());
  }
  if (integers->size() != size) {
    fail(ErrorCode::io, "{}: {} elements, expected batch x heads x columns = {}", path_of(key), integers->size(), size);
  }
  using Limits = std::numeric_limits<std::int32_t>;
  std::vector<std::int32_t> out(size);
  for (std::size_t i = 0; i < size; ++i) {
    const std::int64_t element = (*integers)[i];
    if (element < Limits::min() || element > Limits::max()) {
      fail(ErrorCode::io, "{}[{}]: {} is outside [{}, {}]", path_of(key), i, element, Limits::min(), Limits::max());
    }
    out[i] = static_cast<std::int32_t>(element);
  }
  return out;
}

std::int64_t Fields::header(std::string_view name, std::int64_t version) {
  const std::string format = string("format");
  if (format != name) {
    fail(ErrorCode::io, "{}: format is {}, expected \"{}\"", path_, printable(format), name);
  }
  return integer("version", {1, version});
}

void Fields::finish() const {
  for (const Json::Member& member : *members_) {
    if (std::find(known_.begin(), known_.end(), member.first) == known_.end()) {
      std::string known;
      for (const std::string_view key : known_) (known += known.empty() ? "" : ", ") += key;
      fail(ErrorCode::io, "{}: unknown key {}; known here: {}", path_, printable(member.first), known);
    }
  }
}

}  // namespace flashmask::format
