#include "report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/environment.hpp"

namespace flashmask::app {

std::string percent_up(double share, int decimals) {
  const double scale = std::pow(10.0, decimals);
  return fmt::format("{:.{}f}%", std::ceil(share * 100 * scale) / scale, decimals);
}

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

namespace {

/// The names in FLASHMASK_LOG.
const std::vector<std::string>& log_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    const std::string text = core::environment("FLASHMASK_LOG").value_or("");
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      std::string name = text.substr(begin, end - begin);
      if (const std::size_t level = name.find(":debug"); level != std::string::npos && level + 6 == name.size()) {
        name.resize(level);  // the one level there is
      }
      all.push_back(std::move(name));
      begin = end + 1;
    }
    return all;
  }();
  return names;
}

}  // namespace

void check_log_variable() {
  for (const std::string& name : log_names()) {
    if (name == "run" || name == "bench" || name == "all") continue;
    fmt::print(stderr,
               "flashmask: environment variable FLASHMASK_LOG: {} is no log; expected run, bench or all, or "
               "several with commas between them\n",
               format::printable(name));
    return;
  }
}

void log(std::string_view room, std::string_view text) {
  const auto& names = log_names();
  if (std::any_of(names.begin(), names.end(), [&](const auto& n) { return n == room || n == "all"; })) {
    fmt::print(stderr, "[{}] {}\n", room, text);
  }
}

void write_json(const std::string& path, const format::Json& value) {
  format::write_file(path, value.dump() + "\n");
}

}  // namespace flashmask::app
