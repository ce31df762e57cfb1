// Which mask a command is to work on: a builder, a workload, or a file of another library; one set of options for all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flashmask/builders.hpp"
#include "flashmask/mask.hpp"
#include "format/workload.hpp"

namespace CLI {
class App;
}

namespace flashmask::app {

struct MaskRequest {
  const CLI::App* command = nullptr;  ///< whose options these are, to tell what was given
  /// Builders that share the options (plan --layers, bench --twelve); empty: the one that is built.
  std::vector<std::string> served;
  std::string mask;         ///< builder name; empty: the workload's own
  std::string workload;     ///< generator spec or file
  std::string import_file;  ///< excludes the two above
  std::string import_format = "mask";
  bool causal = false;               ///< imports that leave it open
  std::optional<std::int64_t> rows;  ///< default: the workload's, else 8192
  std::optional<std::int64_t> columns;
  std::int64_t batch = 1;
  std::int64_t mask_heads = 1;
  std::uint64_t seed = 0;
  std::optional<std::int64_t> window, prefix, chunk, frame;
  std::int64_t global = 16;
  std::int64_t buckets = 8;
  std::string left = "unbounded", right = "0", past = "unbounded";
};

/// A mask and what is known about where it came from.
struct NamedMask {
  std::string name;     ///< for people: "causal_document of histogram"
  std::string builder;  ///< empty for imports
  ColumnMask mask;      ///< canonical
  std::optional<format::Workload> workload;
};

/// Adds --mask, --workload, --import and what they need.
void add_mask_options(CLI::App& command, MaskRequest& request);

/// Builds the mask; throws flashmask::Error naming the option at fault. `default_workload` is used when nothing is
/// asked for.
NamedMask build(const MaskRequest& request, const std::string& default_workload);

/// Refuses what build() refuses of the options themselves, without building a column; the shape the mask will have.
MaskShape check_request(const MaskRequest& request, const std::string& default_workload);

/// Formats of --import, for help texts.
std::string import_formats();
/// A mask from a file in one of those formats.
ColumnMask import_mask(const std::string& file, const std::string& format, bool causal);

}  // namespace flashmask::app
