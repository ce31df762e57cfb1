// flashmask: masked exact attention from the command line (docs/command.md).
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "core/check.hpp"
#include "flashmask/error.hpp"
#include "flashmask/version.hpp"
#include "format/json.hpp"
#include "report.hpp"

namespace {

using namespace flashmask;

/// Names of files and texts from files may hold anything: what reaches a terminal is escaped.
int complain(std::string_view text, int exit_code, std::string_view hint = {}) {
  fmt::print(stderr, "flashmask: error: {}\n{}", format::escaped(text), hint);
  return exit_code;
}

/// Input that can be corrected exits with 2, everything else with 3.
int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
    case ErrorCode::io:
      return app::kBadInput;
    default:
      return app::kOtherFailure;
  }
}

/// An option without its value ("--svg" "", "--svg=") is a mistake of a script, not a way to leave the option out.
void check_values(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument(argv[i]);
    const bool assigned = argument.starts_with("--") && argument.ends_with("=");
    core::check(!assigned && !argument.empty(), "{} \"\": its value is empty; give one or leave the option out",
                assigned ? argument.substr(0, argument.size() - 1) : std::string_view(argv[i - 1]));
  }
}

/// The names of the subcommands of `parser`.
std::string subcommands(const CLI::App& parser) {
  std::string names;
  for (const CLI::App* command : parser.get_subcommands([](const CLI::App*) { return true; })) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return names;
}

/// A first word that is no subcommand is refused with the list of those there are.
void check_subcommand(const CLI::App& parser, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const auto named = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
  core::check(!parser.get_subcommands(named).empty(), "{}: no such subcommand; there are {}", argv[1],
              subcommands(parser));
}

/// Letters to insert, take out or change to make `b` of `a`.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

/// What nobody takes, in words: the first of it that looks like an option, and the option it resembles.
std::string unexpected(const CLI::App& parser) {
  const CLI::App* command = &parser;
  std::string name = "flashmask";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  const std::vector<std::string> extras = parser.remaining(true);
  const auto dashed = [](const std::string& extra) { return extra.starts_with("-"); };
  const auto first = std::find_if(extras.begin(), extras.end(), dashed);
  if (first == extras.end()) return fmt::format("{}: {} has no use for it", CLI::detail::join(extras, " "), name);
  const std::string option = first->substr(0, first->find('='));
  std::string nearest;
  std::size_t least = 3;  // letters apart, at most two
  for (const CLI::Option* known : command->get_options()) {
    const std::size_t apart = distance(option, known->get_name());
    if (apart < least) least = apart, nearest = known->get_name();
  }
  return fmt::format("{}: {} has no such option{}", option, name,
                     option == "--plan" && name == "flashmask plan"
                         ? "; how to plan is --kind, and a plan file is read by --verify"
                     : nearest.empty() ? ""
                                       : fmt::format("; did you mean {}?", nearest));
}

int run(int argc, char** argv) {
  check_values(argc, argv);
  int exit_code = 0;
  CLI::App parser("flashmask: mask-aware exact attention", "flashmask");
  parser.set_version_flag("--version", FLASHMASK_VERSION_STRING);
  parser.require_subcommand(0, 1);
  parser.footer(
      "Examples:\n"
      "  flashmask run                                     the main job: a packed 8K batch, forward and backward, "
      "verified\n"
      "  flashmask mask --mask sliding_window --rows 4096  look at a mask\n"
      "  flashmask mask --workload pack:8192 --explain 4000 100\n"
      "  flashmask plan --workload histogram --rows 131072 --ranks 16 --nodes 2 --compare\n"
      "  flashmask bench --mask causal_document --rows 32768 --json -\n"
      "Exit codes: 0 done and every check passed, 1 a check failed, 2 bad usage or input, 3 anything else, "
      "4 nothing wrong was found, but not all could be checked again (plan --verify).");
  app::add_run(parser, exit_code);
  app::add_mask(parser, exit_code);
  app::add_bench(parser, exit_code);
  app::add_simulate(parser, exit_code);
  app::add_plan(parser, exit_code);
  check_subcommand(parser, argc, argv);
  try {
    parser.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    return complain(unexpected(parser), app::kBadInput, "Run with --help for what is accepted.\n");
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return parser.exit(error);  // --help, --version
    return complain(error.what(), app::kBadInput, "Run with --help for what is accepted.\n");
  }
  if (parser.get_subcommands().empty()) {
    return complain(fmt::format("a subcommand is missing; there are {}", subcommands(parser)), app::kBadInput);
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    app::check_log_variable();
    const int exit_code = run(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {  // a full disk must not pass for success
      return complain("standard output: cannot write", app::kBadInput);
    }
    return exit_code;
  } catch (const Error& error) {
    return complain(error.what(), exit_code_of(error.code()));
  } catch (const std::bad_alloc&) {
    return complain("out of memory: fewer rows, heads or batch rows fit", app::kOtherFailure);
  } catch (const std::exception& error) {
    return complain(error.what(), app::kOtherFailure);
  }
}
