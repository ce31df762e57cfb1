#include "flashmask/sm90.hpp"
#include "sm90/device/query.hpp"
#include "sm90/forward/limits.hpp"
#include "sm90/forward/section.hpp"
#include "sm90/load_kernels.hpp"
#include "sm90/tile_map/device_map.hpp"
#include "sm90/tile_map/host_map.hpp"
#include "sm90/validate.hpp"

namespace flashmask::sm90 {

struct DeviceMask::State {
  DeviceTileMap map;
};

namespace {
/// `section`: as in DeviceTileMap::Options.
DeviceTileMap::Options options_of(const MaskShape& shape, TileShape tile, std::int32_t section) {
  DeviceTileMap::Options options;
  options.form.packed_heads = forward_pass::packed_heads_of(tile);
  options.capacity = default_capacity(shape, tile, forward_pass::bitmap_bytes, options.form);
  options.section = section;
  return options;
}
}  // namespace

DeviceMask::DeviceMask(const MaskShape& shape, TileShape tile) {
  check_tile(tile);
  const DeviceTileMap::Options options = options_of(shape, tile, 0);
  require_hopper();
  load_kernels();
  state_ = std::make_unique<State>(State{DeviceTileMap(shape, tile, options)});
}
DeviceMask::DeviceMask(const MaskShape& shape, TileShape tile, const AttentionShape& calls) {
  check_shape(calls);
  check_mask_shape("the mask", shape, calls);
  check_tile(tile, calls, shape.heads);
  const DeviceTileMap::Options options = options_of(shape, tile, forward_pass::matrices_a_section(calls, shape));
  require_hopper();
  load_kernels();
  state_ = std::make_unique<State>(State{DeviceTileMap(shape, tile, options)});
}
DeviceMask::~DeviceMask() = default;
DeviceMask::DeviceMask(DeviceMask&&) noexcept = default;
DeviceMask& DeviceMask::operator=(DeviceMask&&) noexcept = default;

void DeviceMask::refill(const MaskView& vectors, void* stream) {
  state_->map.refill({vectors.lts, vectors.lte, vectors.uts, vectors.ute}, static_cast<CUstream_st*>(stream));
}

const TileMapView& DeviceMask::view() const {
  return state_->map.view();
}
std::size_t DeviceMask::bytes() const {
  return state_->map.bytes();
}

}  // namespace flashmask::sm90
