#include "given.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "core/check.hpp"
#include "format/json.hpp"

namespace flashmask::app {
namespace {

using core::check;

/// A decimal integer, all of `text`.
std::optional<std::int64_t> integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Whether two names mean one file, also through links and before it exists. A device (/dev/null) takes any number.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code failed;
  if (std::filesystem::is_character_file(a, failed)) return false;
  if (std::filesystem::equivalent(a, b, failed)) return true;
  return std::filesystem::weakly_canonical(a, failed) == std::filesystem::weakly_canonical(b, failed);
}

}  // namespace

std::optional<std::int64_t> decimal(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  return digits.starts_with('0') && text != "0" ? std::nullopt : integer(text);
}

std::string read_given(std::string_view option, const std::string& file) {
  try {
    return format::read_file(file);
  } catch (const Error& error) {
    core::fail(error.code(), "{} {}", option, error.what());
  }
}

bool given(const CLI::App& command, const std::string& option) {
  const CLI::Option* found = command.get_option_no_throw(option);
  return found != nullptr && found->count() > 0;
}

void refuse_given(const CLI::App& command, const std::vector<std::string>& options, std::string_view why) {
  for (const std::string& option : options) {
    if (!given(command, option)) continue;
    std::string values;
    if (const CLI::Option* found = command.get_option_no_throw(option); found->get_expected_max() > 0) {
      for (const std::string& value : found->results()) values += " " + value;
    }
    core::fail(ErrorCode::invalid_argument, "{}{}: {}; leave it out", option, values, why);
  }
}

std::string check_outputs(const std::vector<Output>& outputs) {
  std::string standard;
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    if (output->path == "-") standard = output->option;
    for (auto earlier = outputs.begin(); earlier != output; ++earlier) {
      if (earlier->path.empty() || output->path.empty()) continue;
      const bool both = output->path == "-" && earlier->path == "-";
      check(!both, "{} and {} both write to standard output: give one of them a file", earlier->option, output->option);
      check(output->path == "-" || earlier->path == "-" || !same_file(earlier->path, output->path),
            "{} {} and {} {}: one file for two outputs; name two", earlier->option, earlier->path, output->option,
            output->path);
    }
  }
  return standard;
}

void check_not_over(const std::string& input, std::string_view input_option, const Output& output) {
  if (input.empty() || output.path.empty() || input == "-" || output.path == "-") return;
  check(!same_file(input, output.path), "{} {} would be written over the file of {}; name another", output.option,
        output.path, input_option);
}

void check_writable(const std::string& path) {
  if (path.empty() || path == "-") return;
  std::error_code failed;
  const bool directory = std::filesystem::is_directory(path, failed);
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const bool writable = access(path.c_str(), F_OK) == 0
                            ? access(path.c_str(), W_OK) == 0
                            : access(parent.empty() ? "." : parent.c_str(), W_OK | X_OK) == 0;
  if (writable && !directory) return;
  core::fail(ErrorCode::io, "{}: cannot open it for writing: {}", path, std::strerror(directory ? EISDIR : errno));
}

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  const std::string range = fmt::format("a whole number from {} to {}", low, high);
  return CLI::Validator(
      [low, high, range](std::string& text) {
        const auto value = decimal(text);
        return value && *value >= low && *value <= high ? std::string() : fmt::format("{} is not {}", text, range);
      },
      range);
}

CLI::Validator share_of_one() {
  return CLI::Validator(
      [](std::string& text) {
        double value = -1;  // from_chars reads decimals alone; the parser of options would take 0x1 too
        const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool number = status == std::errc{} && end == text.data() + text.size();
        return number && value >= 0 && value <= 1
                   ? std::string()
                   : fmt::format("{} is not a decimal number from 0 to 1, such as 0.01", text);
      },
      "a decimal number from 0 to 1");
}

CLI::Validator whole_millionths() {
  return CLI::Validator(
      [](std::string& text) {
        double value = -1;
        if (!CLI::detail::lexical_cast(text, value)) return fmt::format("{} is not a number", text);
        const bool whole = std::abs(value * 1e6 - std::round(value * 1e6)) < 1e-6;
        return whole ? std::string() : fmt::format("{} is no whole number of millionths (0.000001)", text);
      },
      "");
}

CLI::Validator one_of_kinds() {
  return CLI::IsMember({"hcc_ipo", "contiguous", "dual_chunk", "per_document_dual_chunk", "lpt"});
}

CLI::Option* add_pair(CLI::App& command, const std::string& name, std::optional<std::array<std::int64_t, 2>>& pair,
                      const std::string& form, const std::string& description) {
  constexpr int kMostValues = 1024;  // more than two are taken, to be refused in words of our own
  const auto read = [name, form, &pair](const std::vector<std::string>& values) {
    std::array<std::int64_t, 2> numbers{};
    bool fits = values.size() == numbers.size();
    for (std::size_t i = 0; fits && i < numbers.size(); ++i) {
      const auto number = decimal(values[i]);
      fits = number && *number >= 0;
      numbers[i] = number.value_or(0);
    }
    const std::string given = CLI::detail::join(values, " ");
    check(fits, "{}{}{}: expected two whole numbers from 0 on, {}, e.g. {} 4 3", name, given.empty() ? "" : " ", given,
          form, name);
    pair = numbers;
  };
  return command.add_option_function<std::vector<std::string>>(name, read, description)
      ->expected(0, kMostValues)
      ->type_name(form);
}

std::vector<std::string> entries(std::string_view option, std::string_view text) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    all.emplace_back(text.substr(begin, end - begin));
    check(!all.back().empty(), "{} \"{}\": entry {} is empty; expected entries separated by commas", option, text,
          all.size());
    begin = end + 1;
  }
  return all;
}

std::vector<std::int64_t> whole_numbers(std::string_view option, std::string_view text, std::int64_t low,
                                        std::int64_t high, std::string_view advice) {
  std::vector<std::int64_t> numbers;
  for (const std::string& entry : entries(option, text)) {
    const auto number = decimal(entry);
    if (!number || *number < low || *number > high) {
      const auto most = static_cast<std::uint64_t>(high);  // a large one is known by its power of two
      const bool power = most >= std::uint64_t{1} << 40 && std::has_single_bit(most);
      core::fail(ErrorCode::invalid_argument, "{}: entry {}, {}, is not a whole number from {} to {}{}{}{}", option,
                 numbers.size() + 1, entry, low, power ? fmt::format("2^{} = ", std::countr_zero(most)) : "", high,
                 advice.empty() ? "" : "; ", advice);
    }
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace flashmask::app
