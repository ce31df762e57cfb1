// The file format "flashmask.mask": a mask as a builder's name and options, or as its four vectors (docs/formats.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "flashmask/builders.hpp"
#include "flashmask/mask.hpp"

namespace flashmask::format {

/// Batch x mask heads x columns of a mask that a file may ask for: 16 bytes each are allocated.
inline constexpr std::int64_t kMaxMaskColumns = std::int64_t{1} << 24;

/// What a mask file says: either `vectors`, or a builder and its options.
struct MaskDescription {
  std::string builder;
  masks::BuilderOptions options;
  std::optional<ColumnMask> vectors;
};

/// Parses the format. Safe on any text: throws io or invalid_argument naming the place; allocates no more than the
/// limits of the parser and kMaxMaskColumns allow. `source` names the text.
MaskDescription parse_mask_description(std::string_view text, std::string_view source);
/// The mask it describes, canonical. Throws as the builders do.
ColumnMask build_mask(const MaskDescription& description);

/// JSON text with the four vectors as they are.
std::string to_json(const ColumnMask& mask);
/// JSON text with a builder's name and those of its options that differ from the default.
std::string to_json(std::string_view builder, const masks::BuilderOptions& options);

}  // namespace flashmask::format
