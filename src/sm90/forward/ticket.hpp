// From a ticket to (head, rank of the row tile): the order in which a mask's row tiles are drawn.
//
// Heads go in sections, so that enough row tiles in flight share the K and V of a head; inside a section the heaviest row
// tiles come first, heads fastest.
#pragma once

#include <cstdint>

#include "flashmask/host_device.hpp"

namespace flashmask::sm90::forward_pass {

struct TicketPlace {
  std::int32_t unit;  ///< batch * query_heads + query head
  std::int32_t rank;  ///< position in the heaviest-first order of the row tiles
  friend constexpr bool operator==(const TicketPlace&, const TicketPlace&) = default;
};

/// `ticket` in [0, units * row_tiles), `section` >= 1 units.
FLASHMASK_HOST_DEVICE constexpr TicketPlace place_of(std::int32_t ticket, std::int32_t units, std::int32_t row_tiles,
                                                     std::int32_t section) {
  const std::int32_t start = ticket / (section * row_tiles) * section;
  const std::int32_t width = units - start < section ? units - start : section;
  const std::int32_t in_section = ticket - start * row_tiles;
  return {start + in_section % width, in_section / width};
}

}  // namespace flashmask::sm90::forward_pass
