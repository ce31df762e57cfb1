#include "sm90_report.hpp"

#include <fmt/format.h>

#include "core/check.hpp"
#include "report.hpp"

namespace flashmask::app {

void check_backend(const AttentionOptions& options) {
  if (!on_sm90(options)) return;
  core::check(options.dtype != "f32",
              "--dtype f32 with --backend sm90: the kernels take bf16 and fp16; f32 runs with --backend cpu");
  core::check(options.head_dim % 8 == 0 && options.head_dim <= 128,
              "--head-dim {} with --backend sm90: expected a multiple of 8 up to 128", options.head_dim);
}

format::Json sm90_json(const Sm90Report& report) {
  format::Json map, value;
  map.set("forward", report.forward_map_ms).set("backward", report.backward_map_ms);
  const auto tile = [](TileShape t) { return format::Json::Integers{t.block_m, t.block_n}; };
  value.set("device", report.device).set("driver", report.driver);
  value.set("forward_tile", tile(report.forward_tile)).set("backward_tile", tile(report.backward_tile));
  value.set("map_ms", std::move(map));
  return value;
}

std::string device_text(const Sm90Report& report) {
  return fmt::format("{}, driver {}", report.device, report.driver);
}

std::string kernel_tiles_text(const Sm90Report& report) {
  return fmt::format("{} x {} forward, {} x {} backward, classified on the device in {} and {}",
                     report.forward_tile.block_m, report.forward_tile.block_n, report.backward_tile.block_m,
                     report.backward_tile.block_n, duration(report.forward_map_ms), duration(report.backward_map_ms));
}

}  // namespace flashmask::app
