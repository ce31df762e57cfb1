// Documents and trees of one batch row as JSON: the part that workload and mask files share.
#pragma once

#include <string>

#include "format/fields.hpp"
#include "format/workload.hpp"

namespace flashmask::format {

/// Token numbers in files.
inline constexpr Range kTokenRange{0, kMaxTokens};

/// {"documents": [...]} or {"tree": [...]}, with "padding"; lengths are ranged but not added up.
PackedRow parse_packed_row(const Json& value, const std::string& path);
Json to_json_value(const PackedRow& row);

/// An array of batch rows with at most kMaxPieces documents and nodes in all.
std::vector<PackedRow> parse_packed_rows(const Json& value, const std::string& path);

}  // namespace flashmask::format
