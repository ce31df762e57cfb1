#include <string>

#include "capi/boundary.hpp"
#include "flashmask/version.hpp"

namespace flashmask::capi {
namespace {
thread_local std::string last_error;
}

flashmask_status record_failure(flashmask_status status, const char* text) noexcept {
  try {
    last_error = text;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

flashmask_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return FLASHMASK_INVALID_ARGUMENT;
    case ErrorCode::unsupported:
      return FLASHMASK_UNSUPPORTED;
    case ErrorCode::out_of_memory:
      return FLASHMASK_OUT_OF_MEMORY;
    case ErrorCode::io:
      return FLASHMASK_IO;
    case ErrorCode::timeout:
      return FLASHMASK_TIMEOUT;
    case ErrorCode::device:
      return FLASHMASK_DEVICE;
    case ErrorCode::internal:
      return FLASHMASK_INTERNAL;
  }
  return FLASHMASK_INTERNAL;
}

}  // namespace flashmask::capi

extern "C" {

int32_t flashmask_abi_version(void) {
  return FLASHMASK_ABI_VERSION;
}

const char* flashmask_version(void) {
  return FLASHMASK_VERSION_STRING;
}

const char* flashmask_status_name(int32_t status) {
  switch (status) {
    case FLASHMASK_OK:
      return "ok";
    case FLASHMASK_INVALID_ARGUMENT:
      return "invalid_argument";
    case FLASHMASK_UNSUPPORTED:
      return "unsupported";
    case FLASHMASK_OUT_OF_MEMORY:
      return "out_of_memory";
    case FLASHMASK_IO:
      return "io";
    case FLASHMASK_TIMEOUT:
      return "timeout";
    case FLASHMASK_DEVICE:
      return "device";
    case FLASHMASK_INTERNAL:
      return "internal";
  }
  return "unknown";
}

const char* flashmask_last_error(void) {
  return flashmask::capi::last_error.c_str();
}

}  // extern "C"
