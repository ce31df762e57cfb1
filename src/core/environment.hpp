// Reading environment variables, with errors that name the variable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace flashmask::core {

/// Value of `name`, or nothing when unset or empty.
std::optional<std::string> environment(const char* name);
/// The same as an integer in [low, high]; throws invalid_argument naming the variable and its value otherwise.
std::optional<std::int64_t> environment_integer(const char* name, std::int64_t low, std::int64_t high);

}  // namespace flashmask::core
