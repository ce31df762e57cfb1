// Reading the members of a JSON object strictly: every error names the place, the value and what is allowed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flashmask/error.hpp"
#include "format/json.hpp"

namespace flashmask::format {

/// A closed integer range.
struct Range {
  std::int64_t low;
  std::int64_t high;
};

/// The integer `value` holds; throws io naming `path` unless it is one inside `range`.
std::int64_t integer_at(const Json& value, const std::string& path, Range range);
/// Calls f() and puts `source` before the text of an Error that does not name it yet: what a file's content breaks deep
/// inside (a builder, a plan's invariants) must still say which file.
template <typename F>
auto naming(std::string_view source, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (std::string_view(error.what()).find(source) != std::string_view::npos) throw;
    throw Error(error.code(), std::string(source) + ": " + error.what(), error.location());
  }
}

/// Calls visit(element, path of the element) for every element; throws io unless `value` is an array of at most
/// `limit`.
void for_each_at(const Json& value, const std::string& path, std::size_t limit,
                 const std::function<void(const Json& element, const std::string& path)>& visit);

/// Reads one object. Every member must be asked for before finish(), which refuses the others by name.
class Fields {
 public:
  /// Throws io unless `value` is an object. `path` names it in errors, e.g. "mask.json: options".
  Fields(const Json& value, std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string path_of(std::string_view key) const;

  /// The member, or nullptr when absent.
  const Json* optional(std::string_view key);
  /// The member; throws io when absent.
  const Json& required(std::string_view key);

  std::int64_t integer(std::string_view key, Range range);
  std::optional<std::int64_t> optional_integer(std::string_view key, Range range);
  std::string string(std::string_view key);
  std::optional<std::string> optional_string(std::string_view key);
  /// A string of 1 to 256 printable ASCII characters, safe to show and to use as a name.
  std::optional<std::string> optional_name(std::string_view key);
  /// An array of exactly `size` int32 values.
  std::vector<std::int32_t> int32_vector(std::string_view key, std::size_t size);

  /// Reads "format" and "version" and throws io unless they are `name` and an integer in [1, version]. Returns it.
  std::int64_t header(std::string_view name, std::int64_t version);
  /// Throws io naming the first member nobody asked for and the members that are known.
  void finish() const;

 private:
  const Json::Object* members_;
  std::string path_;
  std::vector<std::string> known_;
};

}  // namespace flashmask::format
