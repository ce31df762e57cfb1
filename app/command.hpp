// The subcommands of `flashmask`, one file each. A command parses its own options, runs as a callback of the parser and
// leaves the exit code: 0 done (and every check passed), 1 a check failed, 2 bad usage or input, 3 anything else, 4
// nothing wrong was found but something claimed could not be checked again.
#pragma once

namespace CLI {
class App;
}

namespace flashmask::app {

inline constexpr int kCheckFailed = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kOtherFailure = 3;
inline constexpr int kNotRechecked = 4;

/// Each adds its subcommand below `parent`; `exit_code` outlives the parser.
void add_mask(CLI::App& parent, int& exit_code);
void add_run(CLI::App& parent, int& exit_code);
void add_bench(CLI::App& parent, int& exit_code);
void add_simulate(CLI::App& parent, int& exit_code);
void add_plan(CLI::App& parent, int& exit_code);
/// Below `bench`: tables of the balancer.
void add_bench_balance(CLI::App& bench, int& exit_code);

}  // namespace flashmask::app
