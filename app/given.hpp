// Options that were given although nothing would use them are refused, never ignored; and option values read exactly.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flashmask::app {

/// Whether `option` ("--window") was given to `command`; false where the command has no such option.
bool given(const CLI::App& command, const std::string& option);

/// Throws invalid_argument for the first of `options` that was given: "--window 7: WHY; leave it out".
void refuse_given(const CLI::App& command, const std::vector<std::string>& options, std::string_view why);

/// A file that a command is asked to write: the option, and its value ("-" is standard output, empty: not given).
struct Output {
  const char* option;
  std::string path;
};

/// Refuses two outputs to one place. Returns the option that writes to standard output, empty where none does: what is
/// printed for people is left out beside it.
std::string check_outputs(const std::vector<Output>& outputs);

/// Refuses an output that would be written over `input`, the file of `input_option`.
void check_not_over(const std::string& input, std::string_view input_option, const Output& output);

/// Throws io, in the words of the write itself, where `path` could not be written; "-" and "" always can. Asked before
/// the work whose result goes there.
void check_writable(const std::string& path);

/// Check of an option: a whole decimal number in [low, high], nothing that would be rounded, cut or saturated.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);
/// Check of an option: a decimal number from 0 to 1.
CLI::Validator share_of_one();

/// Check of an option: a number with six decimals at most, as millionths are what is kept of it.
CLI::Validator whole_millionths();
/// Check of an option: a kind of plan.
CLI::Validator one_of_kinds();

/// Adds an option of two whole numbers, both at least 0. `form` says what they are, e.g. "ROW COLUMN".
CLI::Option* add_pair(CLI::App& command, const std::string& name, std::optional<std::array<std::int64_t, 2>>& pair,
                      const std::string& form, const std::string& description);

/// A decimal integer, all of `text`, without leading zeros (others take those for octal digits) and without -0.
std::optional<std::int64_t> decimal(std::string_view text);
/// The content of a file that an option names; an Error names both.
std::string read_given(std::string_view option, const std::string& file);
/// "a,b,c" as its entries; throws invalid_argument naming `option` and the position of an empty one.
std::vector<std::string> entries(std::string_view option, std::string_view text);
/// The same as whole numbers in [low, high]; throws naming position and text of what is none, with `advice` behind it.
std::vector<std::int64_t> whole_numbers(std::string_view option, std::string_view text, std::int64_t low,
                                        std::int64_t high, std::string_view advice = {});

}  // namespace flashmask::app
