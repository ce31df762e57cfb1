#include "report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/environment.hpp"

namespace flashmask::app {

std::string grouped(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::ptrdiff_t first = value < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(digits.begin() + at, ',');
  return digits;
}

std::string percent(double share) {
  return fmt::format("{:.{}f}%", 100 * share, share < 0.0995 ? 2 : 1);
}

std::string duration(double milliseconds) {
  return milliseconds < 1000 ? fmt::format("{:.4g} ms", milliseconds) : fmt::format("{:.4g} s", milliseconds / 1000);
}

std::string Sheet::text() const {
  std::size_t width = 0;
  for (const auto& [label, text] : lines_) width = std::max(width, label.size());
  std::string out;
  for (const auto& [label, text] : lines_) out += fmt::format("{:<{}}  {}\n", label, width, text);
  return out;
}

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_[0].size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    out += '\n';
  }
  return out;
}

Progress::Progress(std::string_view what, std::int64_t total)
    : what_(what), total_(std::max<std::int64_t>(1, total)), shown_(isatty(STDERR_FILENO) == 1) {
  advance(0);
}

Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::advance(std::int64_t count) {
  done_ = std::min(done_ + count, total_);
  const int now = static_cast<int>(1000 * done_ / total_);
  if (!shown_ || now == drawn_) return;
  drawn_ = now;
  constexpr int kWidth = 30;
  fmt::print(stderr, "\r{} [{:<{}}] {:5.1f}%", what_, std::string(static_cast<std::size_t>(kWidth * now / 1000), '#'),
             kWidth, now / 10.0);
  std::fflush(stderr);
}

void log(std::string_view room, std::string_view text) {
  static const std::string rooms = core::environment("FLASHMASK_LOG").value_or("");
  std::string_view rest = rooms;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::string_view name = item.substr(0, item.find(':'));
    if (name == room || name == "all") {
      fmt::print(stderr, "[{}] {}\n", room, text);
      return;
    }
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
  }
}

void write_json(const std::string& path, const format::Json& value) {
  format::write_file(path, value.dump() + "\n");
}

}  // namespace flashmask::app
