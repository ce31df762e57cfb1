// What people read: aligned tables, grouped numbers, a progress bar on long work, and log lines on request.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/json.hpp"

namespace flashmask::app {

/// Says once, on standard error, what is wrong with FLASHMASK_LOG and what it may hold.
void check_log_variable();

/// A share as a percentage with so many decimals, rounded up: what is said to be "at most".
std::string percent_up(double share, int decimals);
/// 1234567 as "1,234,567".
std::string grouped(std::int64_t value);
/// A share as "12.3%".
std::string percent(double share);
/// Milliseconds as "12.3 ms" or "4.56 s".
std::string duration(double milliseconds);

/// Milliseconds since it was made.
class Stopwatch {
 public:
  [[nodiscard]] double milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Lines "label   text", printed with all texts in one column.
class Sheet {
 public:
  void add(std::string label, std::string text) { lines_.emplace_back(std::move(label), std::move(text)); }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

/// A table with a header; the first column is left-aligned, the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// A bar on standard error, drawn only when that is a terminal; wiped when it goes out of scope.
class Progress {
 public:
  Progress(std::string_view what, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void advance(std::int64_t count = 1);

 private:
  std::string what_;
  std::int64_t total_, done_ = 0;
  int drawn_ = -1;  ///< tenths of a percent on the screen
  bool shown_;
};

/// One line on standard error if FLASHMASK_LOG names the room or "all"; several names have commas between them.
void log(std::string_view room, std::string_view text);

/// Writes machine output where --json points: a file, or "-" for standard output.
void write_json(const std::string& path, const format::Json& value);

}  // namespace flashmask::app
