// Checked conditions: `check(ok, "rows must be >= 0, got {}", rows)` throws flashmask::Error with the caller's place.
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <utility>

#include "flashmask/error.hpp"

namespace flashmask::core {

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
  throw Error(code, fmt::format(format.text, std::forward<Args>(args)...), format.location);
}

/// Throws invalid_argument unless `ok`.
template <typename... Args>
void check(bool ok, Format<Args...> format, Args&&... args) {
  if (!ok) fail<Args...>(ErrorCode::invalid_argument, format, std::forward<Args>(args)...);
}

}  // namespace flashmask::core
