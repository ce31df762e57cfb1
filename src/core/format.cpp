#include <fmt/format.h>

#include "core/check.hpp"

namespace flashmask::core {

std::string vformat(fmt::string_view text, fmt::format_args arguments) { return fmt::vformat(text, arguments); }

void vfail(ErrorCode code, fmt::string_view text, fmt::format_args arguments, std::source_location location) {
  throw Error(code, fmt::vformat(text, arguments), location);
}

}  // namespace flashmask::core
