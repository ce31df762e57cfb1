// Plan files, format "flashmask.plan" version 2 (docs/balance.md), and calibration files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "flashmask/balance.hpp"
#include "format/json.hpp"

namespace flashmask::format {

/// The plan as a JSON value: every field of the record and, for readers, imbalance, gap and digest. Need sets are
/// written as runs of chunks, how tiles were counted as tile_work (from version 2 on), the lattice of a bound by residue
/// as residue (from version 3 on). `time_us` is how long the search took, where known. Throws invalid_argument for a plan
/// that no file holds: bare loads with need sets, or cells and tiles without.
Json plan_json(const Plan& plan, std::optional<std::int64_t> time_us = std::nullopt);

/// Parses that format. Safe on any text: throws io or invalid_argument naming the field. Derived members (imbalance,
/// gap, digest) may be absent, but must agree when present. `source` names the text in errors.
Plan parse_plan(std::string_view text, std::string_view source);

/// Tile costs by direction from a calibration file: {"format": "flashmask.calibration", "version": 1,
/// "forward": {"partial": 1080, "unmasked": 1000}, "backward": {...}} in thousandths; an absent direction keeps its
/// default.
DirectionCosts parse_calibration(std::string_view text, std::string_view source);

}  // namespace flashmask::format
