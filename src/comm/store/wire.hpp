// The bytes of the TCP store. All numbers little endian.
//
//   hello     "FMSK" u32 version, u16 token bytes, token          -> reply u8 status
//   request   u8 operation, u16 key bytes, u32 value bytes or (get) deadline in ms, key, value (set)
//   reply     u8 status, u32 bytes, value (get) or error text
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/store/store.hpp"

namespace flashmask::comm::wire {

inline constexpr std::string_view kMagic = "FMSK";
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kHelloHeader = 4 + 4 + 2;
inline constexpr std::size_t kRequestHeader = 1 + 2 + 4;
inline constexpr std::size_t kReplyHeader = 1 + 4;

enum class Operation : std::uint8_t { set = 1, get = 2 };
enum class Status : std::uint8_t { ok = 0, refused = 1, timeout = 2 };

template <typename T>
void append(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    out += static_cast<char>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xff);
}
template <typename T>
T parse(std::string_view in) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(in[i])) << (8 * i);
  return static_cast<T>(value);
}

inline std::string hello(std::string_view token) {
  std::string out(kMagic);
  append(out, kVersion);
  append(out, static_cast<std::uint16_t>(token.size()));
  return out.append(token);
}
inline std::string request(Operation operation, std::string_view key, std::uint32_t number, std::string_view value) {
  std::string out;
  append(out, static_cast<std::uint8_t>(operation));
  append(out, static_cast<std::uint16_t>(key.size()));
  append(out, number);
  return out.append(key).append(value);
}
inline std::string reply(Status status, std::string_view value) {
  std::string out;
  append(out, static_cast<std::uint8_t>(status));
  append(out, static_cast<std::uint32_t>(value.size()));
  return out.append(value);
}

}  // namespace flashmask::comm::wire
