// The one exception of the library, and the helpers that throw it.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace flashmask {

/// What kind of thing went wrong; the C ABI maps these one to one to status codes.
enum class ErrorCode {
  invalid_argument,  ///< a value outside what is allowed; the text says which and what is
  unsupported,       ///< a legal request this build or this version does not serve
  out_of_memory,     ///< host or device memory, or a workspace smaller than its query said
  io,                ///< a file that cannot be read, written or understood
  timeout,           ///< a wait that passed its deadline; the text says who waited for what of whom
  device,            ///< a CUDA or NCCL call failed; the text names the call
  internal,          ///< a broken invariant of this library
};

/// Short stable name of a code, e.g. "invalid_argument".
std::string_view to_string(ErrorCode code);

/// Thrown by every checked condition. `what()` names the argument, its value, what is allowed and the likely fix.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text, std::source_location location = std::source_location::current());

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] const std::source_location& location() const noexcept { return location_; }

 private:
  ErrorCode code_;
  std::source_location location_;
};

}  // namespace flashmask
