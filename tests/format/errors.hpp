// The text of the error a call throws, "" when it throws none.
#pragma once

#include <string>

#include "flashmask/error.hpp"

namespace flashmask::format {

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace flashmask::format
