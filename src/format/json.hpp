// JSON values, a parser that is safe on files from strangers, and a writer. The JSON library stays behind json.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace flashmask::format {

/// What a parse may cost. A document inside these limits needs at most
/// 4 x bytes + 24 x integers + 256 x values bytes of memory at any time, whatever its content (704 MiB by default).
struct JsonLimits {
  std::size_t bytes = std::size_t{64} << 20;    ///< length of the text
  std::size_t depth = 16;                       ///< nested arrays and objects
  std::size_t integers = std::size_t{8} << 20;  ///< elements of arrays that hold integers only
  std::size_t values = std::size_t{1} << 20;    ///< everything else: members, strings, nested arrays, ...
};

/// One JSON value. Objects keep the order of their members; an array of integers is held as such, eight bytes each.
class Json {
 public:
  using Integers = std::vector<std::int64_t>;
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  Json(bool value) : value_(value) {}                           // NOLINT: values convert as in JSON itself
  Json(int value) : value_(std::int64_t{value}) {}              // NOLINT
  Json(std::int64_t value) : value_(value) {}                   // NOLINT
  Json(double value) : value_(value) {}                         // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(Integers value) : value_(std::move(value)) {}            // NOLINT
  Json(Array value) : value_(std::move(value)) {}               // NOLINT
  Json(Object value) : value_(std::move(value)) {}              // NOLINT

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  [[nodiscard]] const bool* boolean() const { return std::get_if<bool>(&value_); }
  [[nodiscard]] const std::int64_t* integer() const { return std::get_if<std::int64_t>(&value_); }
  [[nodiscard]] const double* number() const { return std::get_if<double>(&value_); }
  [[nodiscard]] const std::string* string() const { return std::get_if<std::string>(&value_); }
  [[nodiscard]] const Integers* integers() const { return std::get_if<Integers>(&value_); }
  [[nodiscard]] const Array* array() const { return std::get_if<Array>(&value_); }
  [[nodiscard]] const Object* object() const { return std::get_if<Object>(&value_); }
  [[nodiscard]] Integers* integers() { return std::get_if<Integers>(&value_); }
  [[nodiscard]] Array* array() { return std::get_if<Array>(&value_); }
  [[nodiscard]] Object* object() { return std::get_if<Object>(&value_); }

  /// Member of an object, or nullptr (also when this is no object).
  [[nodiscard]] const Json* find(std::string_view key) const;
  /// Appends a member; this must be an object or null, which becomes one. Returns *this.
  Json& set(std::string key, Json value);

  /// What kind of value this is, for error texts: "an integer", "a string", ...; a number that is no integer with its
  /// value, an array with the place of its first element that is none.
  [[nodiscard]] std::string kind() const;

  /// The value as text: `indent` spaces a level, arrays of numbers on one line; indent 0 puts all on one line.
  /// Strings that are not UTF-8 are repaired, numbers that are not finite become null.
  [[nodiscard]] std::string dump(int indent = 2) const;

  friend bool operator==(const Json&, const Json&) = default;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Integers, Array, Object> value_;
};

/// Parses one JSON document. `source` names it in errors. Throws io with line and column for text that is not JSON, for
/// a key given twice in one object, for a byte order mark or a NUL byte anywhere, and for a document beyond the limits.
Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits = {});

/// A text from a stranger as it may be shown on a terminal: in quotes, escaped to printable ASCII, at most 64
/// characters.
std::string printable(std::string_view text);

/// A text for a terminal, uncut: control characters and bytes that are not UTF-8 become \xNN.
std::string escaped(std::string_view text);

/// Text of a file ("-" is standard input). Throws io for a file that cannot be read or is longer than `limit` bytes.
std::string read_file(const std::string& path, std::size_t limit = JsonLimits{}.bytes);
/// Writes a file ("-" is standard output) or throws io.
void write_file(const std::string& path, std::string_view text);

}  // namespace flashmask::format
