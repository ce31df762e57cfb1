#include "core/environment.hpp"

#include <charconv>
#include <cstdlib>

#include "core/check.hpp"

namespace flashmask::core {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<std::int64_t> environment_integer(const char* name, std::int64_t low, std::int64_t high) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  check(status == std::errc{} && end == text->data() + text->size() && value >= low && value <= high,
        "environment variable {}={}: expected an integer in [{}, {}]", name, *text, low, high);
  return value;
}

}  // namespace flashmask::core
