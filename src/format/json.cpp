#include "format/json.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.hpp"

namespace flashmask::format {
namespace {

using core::fail;

/// Builds a Json from parser events and stops at the first thing that is out of bounds. No recursion.
class Builder {
 public:
  Builder(std::string_view source, const JsonLimits& limits) : source_(source), limits_(limits) {}

  bool null() { return put(Json()); }
  bool boolean(bool value) { return put(Json(value)); }
  bool number_integer(std::int64_t value) { return put_integer(value); }
  bool number_unsigned(std::uint64_t value) {
    if (value <= std::uint64_t{INT64_MAX}) return put_integer(static_cast<std::int64_t>(value));
    return put(Json(static_cast<double>(value)));
  }
  bool number_float(double value, const std::string& /*text*/) { return put(Json(value)); }
  bool string(std::string& value) { return put(Json(std::move(value))); }
  bool binary(std::vector<std::uint8_t>& /*value*/) { return false; }

  bool start_object(std::size_t /*elements*/) { return open(Json(Json::Object())); }
  bool start_array(std::size_t /*elements*/) { return open(Json(Json::Integers())); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& value) {
    auto& members = *stack_.back()->object();
    count_value();
    // Strict objects have a handful of members; the check is quadratic only in objects no format of ours has.
    if (members.size() >= kMembers) {
      fail(ErrorCode::io, "{}: an object has more than {} members", source_, kMembers);
    }
    for (const auto& member : members) {
      if (member.first == value)
        fail(ErrorCode::io, "{}: key {} is given twice in one object", source_, printable(value));
    }
    members.emplace_back(std::move(value), Json());
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*token*/, const nlohmann::json::exception& error) {
    const char* text = std::strstr(error.what(), "] ");
    std::string shown(text != nullptr ? text + 2 : error.what());
    if (shown.size() > kMessage) shown.resize(kMessage);
    for (char& c : shown) {
      if (c < ' ' || c > '~') c = '?';
    }
    fail(ErrorCode::io, "{}: not JSON: {}", source_, shown);
  }

  Json take() { return std::move(root_); }

 private:
  static constexpr std::size_t kMembers = 256;
  static constexpr std::size_t kMessage = 240;

  void count_value() {
    if (++values_ > limits_.values) fail(ErrorCode::io, "{}: more than {} values", source_, limits_.values);
  }

  bool put_integer(std::int64_t value) {
    if (!stack_.empty()) {
      if (auto* integers = stack_.back()->integers()) {
        if (++integers_ > limits_.integers) {
          fail(ErrorCode::io, "{}: more than {} integers in arrays", source_, limits_.integers);
        }
        integers->push_back(value);
        return true;
      }
    }
    return put(Json(value));
  }

  bool put(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json value) {
    if (stack_.size() >= limits_.depth) fail(ErrorCode::io, "{}: nested deeper than {}", source_, limits_.depth);
    stack_.push_back(place(std::move(value)));
    return true;
  }

  bool close() {
    stack_.pop_back();
    return true;
  }

  /// Stores a value where the parser stands and returns its address, which stays valid while its container is open:
  /// a container grows only through its last element.
  Json* place(Json value) {
    count_value();
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (auto* members = parent.object()) {
      members->back().second = std::move(value);
      return &members->back().second;
    }
    if (auto* integers = parent.integers()) {  // the first element that is no integer
      Json::Array array;
      for (const std::int64_t integer : *integers) {
        count_value();
        array.emplace_back(integer);
      }
      parent = Json(std::move(array));
    }
    auto& array = *parent.array();
    array.push_back(std::move(value));
    return &array.back();
  }

  std::string_view source_;
  JsonLimits limits_;
  Json root_;
  std::vector<Json*> stack_;
  std::size_t values_ = 0;
  std::size_t integers_ = 0;
};

void append_string(std::string& out, const std::string& text) {
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_newline(std::string& out, int indent, int level) {
  if (indent == 0) return;
  out += '\n';
  out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(level), ' ');
}

/// The shortest text that reads back as the same number.
template <typename Number>
void append_number(std::string& out, Number number) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  out.append(text.data(), end);
}

bool is_short(const Json& value) {
  return value.array() == nullptr && value.object() == nullptr;
}

void append(std::string& out, const Json& value, int indent, int level) {
  if (value.is_null()) {
    out += "null";
  } else if (const bool* boolean = value.boolean()) {
    out += *boolean ? "true" : "false";
  } else if (const std::int64_t* integer = value.integer()) {
    append_number(out, *integer);
  } else if (const double* number = value.number()) {
    if (std::isfinite(*number)) {
      append_number(out, *number);
    } else {
      out += "null";
    }
  } else if (const std::string* string = value.string()) {
    append_string(out, *string);
  } else if (const Json::Integers* integers = value.integers()) {
    out += '[';
    for (std::size_t i = 0; i < integers->size(); ++i) {
      if (i > 0) out += ',';
      append_number(out, (*integers)[i]);
    }
    out += ']';
  } else if (const Json::Array* array = value.array()) {
    bool flat = true;
    for (const Json& element : *array) flat = flat && is_short(element);
    out += '[';
    for (std::size_t i = 0; i < array->size(); ++i) {
      if (i > 0) out += flat && indent > 0 ? ", " : ",";
      if (!flat) append_newline(out, indent, level + 1);
      append(out, (*array)[i], indent, level + 1);
    }
    if (!flat) append_newline(out, indent, level);
    out += ']';
  } else {
    const Json::Object& members = *value.object();
    out += '{';
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out += ',';
      append_newline(out, indent, level + 1);
      append_string(out, members[i].first);
      out += indent > 0 ? ": " : ":";
      append(out, members[i].second, indent, level + 1);
    }
    if (!members.empty()) append_newline(out, indent, level);
    out += '}';
  }
}

}  // namespace

const Json* Json::find(std::string_view key) const {
  if (const Object* members = object()) {
    for (const Member& member : *members) {
      if (member.first == key) return &member.second;
    }
  }
  return nullptr;
}

Json& Json::set(std::string key, Json value) {
  if (is_null()) value_ = Object();
  std::get<Object>(value_).emplace_back(std::move(key), std::move(value));
  return *this;
}

std::string Json::kind() const {
  if (const double* x = number())
    return core::format("the number {} (integers: no fraction, no exponent, below 2^63)", *x);
  if (const Array* elements = array()) {
    for (std::size_t i = 0; i < elements->size(); ++i) {
      const Json& element = (*elements)[i];
      if (element.integer() != nullptr) continue;
      const bool nested = element.array() != nullptr || element.integers() != nullptr;
      return core::format("an array whose element {} is {}", i, nested ? "an array" : element.kind());
    }
  }
  static constexpr std::string_view names[] = {
      "null", "a boolean", "an integer", "a number", "a string", "an array of integers", "an array", "an object"};
  return std::string(names[value_.index()]);
}

std::string Json::dump(int indent) const {
  std::string out;
  append(out, *this, indent, 0);
  return out;
}

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    fail(ErrorCode::io, "{}: {} bytes, at most {} are read", source, text.size(), limits.bytes);
  }
  // The library below skips the mark and takes a NUL byte for the end, whatever follows.
  if (text.starts_with("\xEF\xBB\xBF")) {
    fail(ErrorCode::io, "{}: not JSON: it starts with a byte order mark; save it as UTF-8 without one", source);
  }
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail(ErrorCode::io, "{}: not JSON: byte {} is NUL", source, nul);
  }
  Builder builder(source, limits);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    fail(ErrorCode::io, "{}: not JSON", source);
  }
  return builder.take();
}

std::string printable(std::string_view text) {
  constexpr std::size_t kShown = 64;
  const std::string head(text.substr(0, kShown));
  std::string out = nlohmann::json(head).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > kShown) out += "...";
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
    const unsigned lead = byte(i);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xf0 && lead < 0xf5 ? 4
                               : lead >= 0xe0                ? 3
                               : lead >= 0xc2                ? 2
                                                             : 0;
    bool plain = length > 0 && lead < 0xf5 && lead >= ' ' && lead != 0x7f;
    for (std::size_t k = 1; k < length; ++k) plain = plain && byte(i + k) >= 0x80 && byte(i + k) < 0xc0;
    if (lead == 0xc2 && byte(i + 1) < 0xa0) plain = false;  // the C1 controls
    if (plain) {
      out += text.substr(i, length);
      i += length;
    } else {
      out += core::format("\\x{:02x}", lead);
      ++i;
    }
  }
  return out;
}

std::string read_file(const std::string& path, std::size_t limit) {
  const auto close = [](std::FILE* file) {
    if (file != stdin) std::fclose(file);
  };
  const std::unique_ptr<std::FILE, decltype(close)> file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"), close);
  if (file == nullptr) fail(ErrorCode::io, "{}: cannot open it for reading: {}", path, std::strerror(errno));
  std::string text;
  char block[1 << 16];
  while (const std::size_t count = std::fread(block, 1, sizeof block, file.get())) {
    text.append(block, count);
    if (text.size() > limit) fail(ErrorCode::io, "{}: longer than the {} bytes that are read at most", path, limit);
  }
  if (std::ferror(file.get()) != 0) fail(ErrorCode::io, "{}: cannot read it: {}", path, std::strerror(errno));
  return text;
}

void write_file(const std::string& path, std::string_view text) {
  if (path == "-") {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (!written || std::fflush(stdout) != 0) fail(ErrorCode::io, "standard output: cannot write");
    return;
  }
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) fail(ErrorCode::io, "{}: cannot open it for writing: {}", path, std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) fail(ErrorCode::io, "{}: cannot write it: {}", path, std::strerror(errno));
}

}  // namespace flashmask::format
