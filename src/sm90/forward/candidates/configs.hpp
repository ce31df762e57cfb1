// Configurations of the candidates, said once for their instances and their table.
#pragma once

#include "sm90/forward/launch.hpp"

namespace flashmask::sm90::forward_pass {

constexpr ForwardConfig form_of(std::int32_t block_n, std::int32_t packed_heads, std::int32_t column_units) {
  ForwardConfig config = config_of({192, block_n}, 128, Element::bf16, false);
  config.packed_heads = packed_heads;
  config.column_units = column_units;
  return config;
}

constexpr ForwardConfig every_lane() {
  ForwardConfig config = form_of(80, 1, 1);
  config.every_lane_arrives = true;
  return config;
}

Launch launch_every_lane, launch_pack8_n80, launch_pack8_n64, launch_pack64_n80, launch_any_n80, launch_any_n64,
    launch_pack8_any_n80, launch_pack8_any_n64;

}  // namespace flashmask::sm90::forward_pass
