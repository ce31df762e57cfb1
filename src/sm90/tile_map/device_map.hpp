// The tile map in device memory: built by a handful of kernels of microseconds, read by the attention kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "flashmask/mask.hpp"
#include "sm90/tile_map/rule.hpp"

struct CUstream_st;  // what cudaStream_t points to

namespace flashmask::sm90 {

/// Raw mask vectors in device memory, each [batch][mask heads][columns], any int32 values. A null vector stands for the
/// value that hides nothing: LTS = rows, LTE = rows, UTS = 0, UTE = 0 (so LTS alone means [LTS, rows)).
struct DeviceVectors {
  const std::int32_t* lts = nullptr;
  const std::int32_t* lte = nullptr;
  const std::int32_t* uts = nullptr;
  const std::int32_t* ute = nullptr;
};

/// Owns (or borrows) the arrays behind a TileMapView. Shape and capacity are fixed at creation; the content is refilled
/// in place from device vectors, without allocation or synchronisation, legal under CUDA graph capture. Readers on
/// other streams must order themselves after the refill, and a refill after its readers, as with any device buffer.
class DeviceTileMap {
 public:
  struct Options {
    std::optional<MapCapacity> capacity;  ///< default_capacity() when absent
    TileCosts costs{};                    ///< what the cost order ranks by
    MapForm form{};
    /// Matrices (batch x mask heads) whose row tiles are drawn before those of the next ones: as many as have K and V
    /// in L2. 0: one order over all.
    std::int32_t section = 0;
    /// bytes() of device memory, 256-byte aligned, that outlives the map; null: allocated and owned.
    void* memory = nullptr;
  };

  /// Throws invalid_argument as check_map_shape, out_of_memory if the device has no room. The content is undefined
  /// until the first refill.
  DeviceTileMap(const MaskShape& mask, TileShape tile, const Options& options);
  DeviceTileMap(const MaskShape& mask, TileShape tile) : DeviceTileMap(mask, tile, Options{}) {}
  /// Device memory a map of this shape and capacity takes.
  static std::size_t bytes(const MaskShape& mask, TileShape tile, const MapCapacity& capacity,
                           const MapForm& form = {});
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  /// Queues the rebuild on `stream`; pointers must stay valid until it has run.
  void refill(const DeviceVectors& vectors, CUstream_st* stream);

  /// What kernels take by value. The pointers never change; the content is that of the last refill.
  [[nodiscard]] const TileMapView& view() const { return view_; }
  [[nodiscard]] const MapCapacity& capacity() const { return capacity_; }
  /// Counts of the last refill. Synchronises `stream`; not for use under capture.
  [[nodiscard]] MapCounts read_counts(CUstream_st* stream) const;

 private:
  struct FreeDevice {
    void operator()(void* memory) const;
  };

  MaskShape shape_;
  TileGrid grid_{};
  MapCapacity capacity_;
  TileCosts costs_;
  std::int32_t section_;
  TileMapView view_{};
  std::size_t bytes_ = 0;
  std::size_t sort_bytes_ = 0;
  void* memory_ = nullptr;
  std::unique_ptr<void, FreeDevice> owned_;
};

}  // namespace flashmask::sm90
