// From a ticket to (head, rank of the row tile): the order in which a mask's row tiles are drawn.
//
// Heads go in sections whose K and V fit into L2; inside a section the heaviest row tiles come first, heads fastest.
// Where a mask has a few very heavy row tiles, these come first for all heads, then the rest section by section: else
// those of the last section would start when everything else is nearly done.
#pragma once

#include <cstdint>

#include "flashmask/host_device.hpp"

namespace flashmask::sm90::forward_pass {

struct TicketPlace {
  std::int32_t unit;  ///< batch * query_heads + query head
  std::int32_t rank;  ///< position in the heaviest-first order of the row tiles
  friend constexpr bool operator==(const TicketPlace&, const TicketPlace&) = default;
};

/// `ticket` in [0, units * row_tiles), `section` >= 1 units, `heavy` in [0, row_tiles) ranks that go ahead.
FLASHMASK_HOST_DEVICE constexpr TicketPlace place_of(std::int32_t ticket, std::int32_t units, std::int32_t row_tiles,
                                                     std::int32_t section, std::int32_t heavy) {
  const bool ahead = ticket < units * heavy;
  const std::int32_t first = ahead ? 0 : heavy;
  const std::int32_t ranks = ahead ? heavy : row_tiles - heavy;
  const std::int32_t in_band = ticket - units * first;
  const std::int32_t start = in_band / (section * ranks) * section;
  const std::int32_t width = units - start < section ? units - start : section;
  const std::int32_t in_section = in_band - start * ranks;
  return {start + in_section % width, first + in_section / width};
}

/// Column blocks that start at [first, end), in units of the map, are visited by one pass over the runs of a row tile.
struct BlockWindow {
  std::int32_t first, end;
};

/// With context parallelism the local blocks come first, so that remote chunks have the time of these to arrive: pass 0
/// local, pass 1 right of them, pass 2 left of them.
FLASHMASK_HOST_DEVICE constexpr BlockWindow local_first_window(std::int32_t pass, std::int32_t first_local,
                                                               std::int32_t end_local) {
  constexpr std::int32_t no_end = 0x7FFFFFFF;
  if (pass == 0) return {first_local, end_local};
  return pass == 1 ? BlockWindow{end_local, no_end} : BlockWindow{0, first_local};
}

/// How many of `count` blocks, `step` units apart from `first` on, start before `place`.
FLASHMASK_HOST_DEVICE constexpr std::int32_t blocks_before(std::int32_t first, std::int32_t count, std::int32_t step,
                                                           std::int32_t place) {
  if (place <= first) return 0;
  const std::int32_t before = (place - first - 1) / step + 1;
  return before < count ? before : count;
}

}  // namespace flashmask::sm90::forward_pass
