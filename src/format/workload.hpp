// A workload: what a training step attends over, as documents packed into the rows of a batch (docs/workloads.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flashmask/builders.hpp"

namespace flashmask::format {

/// One batch row: documents or a forest of shared prefixes (depth first, a parent before its children), never both, and
/// the dead tokens that follow. All lengths add up to the rows of the workload.
struct PackedRow {
  std::vector<masks::Document> documents;
  std::vector<masks::TreeNode> tree;
  std::int64_t padding = 0;
};

struct Workload {
  std::string name;       ///< where it comes from: a generator's spec or a file
  std::string mask;       ///< builder name (flashmask::masks), e.g. "causal_document"
  std::int64_t rows = 0;  ///< tokens of every batch row
  std::vector<PackedRow> batch;
};

/// Bounds of every workload, whatever its origin.
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;  ///< batch rows x rows
inline constexpr std::int64_t kMaxBatch = 4096;
inline constexpr std::int64_t kMaxPieces = std::int64_t{1} << 20;  ///< documents and nodes over the batch

/// Throws invalid_argument naming the first batch row, document or node that breaks a rule of the structs above.
void validate(const Workload& workload);

/// What build() needs for this workload and a mask of any name: rows, batch, documents or trees; the rest is default.
masks::BuilderOptions builder_options(const Workload& workload);

/// Rows, batch and seed of a generated workload.
struct GeneratorOptions {
  std::int64_t rows = 0;  ///< 0: what the generator says (a pack's or one tree's size), else 8192
  std::int64_t batch = 1;
  std::uint64_t seed = 0;  ///< the same seed gives the same workload on every machine
};

/// One generator for help texts.
struct GeneratorInfo {
  std::string_view form;     ///< "equal:k"
  std::string_view meaning;  ///< one line
};
/// All generators, in the order of docs/workloads.md.
const std::vector<GeneratorInfo>& generators();

/// Whether `text` names a generator (its word before ':' is one), so that a command can tell a spec from a file name.
bool is_generator(std::string_view text);

/// Builds the workload of a spec such as "histogram", "equal:16" or "grpo:512,8,256". Throws invalid_argument naming
/// the spec, what is wrong with it and the known forms.
Workload generate(std::string_view spec, const GeneratorOptions& options = {});

/// JSON text of a workload, format "flashmask.workload" version 1.
std::string to_json(const Workload& workload);
/// Parses that format. Safe on any text: throws io or invalid_argument naming the place. `source` names the text.
Workload parse_workload(std::string_view text, std::string_view source);
/// A generator's spec or a file in the JSON format. `options` apply to generators; for a file they must agree with it
/// where they are set (rows != 0, batch != 1).
Workload load_workload(const std::string& spec_or_file, const GeneratorOptions& options = {});

}  // namespace flashmask::format
