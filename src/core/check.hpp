// Text and checked conditions: `check(ok, "rows must be >= 0, got {}", rows)` throws flashmask::Error with the caller's
// place. Formatting itself is compiled once, in format.cpp: a header-only {fmt} would triple the time of every file.
#pragma once

#include <fmt/core.h>

#include <source_location>
#include <string>
#include <type_traits>

#include "flashmask/error.hpp"

namespace flashmask::core {

/// {fmt} behind one function that is compiled once.
std::string vformat(fmt::string_view text, fmt::format_args arguments);
[[noreturn]] void vfail(ErrorCode code, fmt::string_view text, fmt::format_args arguments, std::source_location location);

/// Text with {} placeholders, checked at compile time.
template <typename... Args>
std::string format(fmt::format_string<Args...> text, Args&&... args) {
  return core::vformat(text, fmt::make_format_args(args...));
}

/// A format string that remembers where it was written.
template <typename... Args>
struct LocatedFormat {
  fmt::format_string<Args...> text;
  std::source_location location;

  template <typename S>
  consteval LocatedFormat(const S& s, std::source_location l = std::source_location::current())  // NOLINT
      : text(s), location(l) {}
};

template <typename... Args>
using Format = LocatedFormat<std::type_identity_t<Args>...>;

template <typename... Args>
[[noreturn]] void fail(ErrorCode code, Format<Args...> format, Args&&... args) {
  vfail(code, format.text, fmt::make_format_args(args...), format.location);
}

/// Throws invalid_argument unless `ok`.
template <typename... Args>
void check(bool ok, Format<Args...> format, Args&&... args) {
  if (!ok) vfail(ErrorCode::invalid_argument, format.text, fmt::make_format_args(args...), format.location);
}

}  // namespace flashmask::core
