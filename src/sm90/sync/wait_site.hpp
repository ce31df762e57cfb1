// Who waited when a bounded wait gave up: the error word of a workspace, and its text.
#pragma once

#include <cstdint>
#include <string>

namespace flashmask::sm90 {

/// Low 8 bits of the error word; the bits above hold the chunk for `chunk`. 0: no error.
enum class WaitSite : std::uint32_t {
  none = 0,
  full_q = 1,
  empty_q = 2,
  full_k = 3,
  empty_k = 4,
  full_v = 5,
  empty_v = 6,
  full_queue = 7,
  empty_queue = 8,
  chunk = 9,
  full_visibility = 10,
  empty_visibility = 11,
  backward = 32,  ///< first number free for the backward kernel
};

inline std::string describe_wait(std::uint32_t error) {
  switch (static_cast<WaitSite>(error & 0xFFU)) {
    case WaitSite::none:
      return "no wait";
    case WaitSite::full_q:
      return "consumer waiting for Q";
    case WaitSite::empty_q:
      return "loader waiting for the consumers to release Q";
    case WaitSite::full_k:
      return "consumer waiting for K";
    case WaitSite::empty_k:
      return "loader waiting for a free K stage";
    case WaitSite::full_v:
      return "consumer waiting for V";
    case WaitSite::empty_v:
      return "loader waiting for a free V stage";
    case WaitSite::full_queue:
      return "loader waiting for the index generator";
    case WaitSite::empty_queue:
      return "index generator waiting for the loader";
    case WaitSite::full_visibility:
      return "consumer waiting for the mask generators";
    case WaitSite::empty_visibility:
      return "mask generator waiting for the consumers";
    case WaitSite::chunk:
      return "loader waiting for chunk " + std::to_string(error >> 8);
    case WaitSite::backward:
      break;
  }
  return "wait site " + std::to_string(error);
}

}  // namespace flashmask::sm90
