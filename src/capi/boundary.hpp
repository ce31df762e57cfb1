// Where exceptions stop: every extern "C" function runs its body through `guarded`.
#pragma once

#include <new>
#include <string>
#include <type_traits>

#include "core/check.hpp"
#include "flashmask/error.hpp"
#include "flashmask/flashmask.h"

namespace flashmask::capi {

/// Stores the text of the last failure of this thread and returns its status.
flashmask_status record_failure(flashmask_status status, const char* text) noexcept;
flashmask_status status_of(ErrorCode code) noexcept;

template <typename Body>
flashmask_status guarded(Body&& body) noexcept {
  try {
    body();
    return FLASHMASK_OK;
  } catch (const Error& e) {
    return record_failure(status_of(e.code()), e.what());
  } catch (const std::bad_alloc&) {
    return record_failure(FLASHMASK_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& e) {
    return record_failure(FLASHMASK_INTERNAL, e.what());
  } catch (...) {
    return record_failure(FLASHMASK_INTERNAL, "unknown exception");
  }
}

template <typename T>
T& required(T* pointer, const char* name) {
  core::check(pointer != nullptr, "{} must not be NULL", name);
  return *pointer;
}

/// Structs of the ABI grow at their end; a caller's smaller (older) struct is read up to its own size, the rest is
/// zero.
template <typename T>
T sized_copy(const T* arguments, const char* name) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::size_t size = required(arguments, name).struct_size;
  core::check(size >= sizeof(std::size_t) && size <= sizeof(T),
              "{}.struct_size is {}: set it to sizeof the struct; this library knows up to {} bytes", name, size,
              sizeof(T));
  T copy{};
  __builtin_memcpy(&copy, arguments, size);
  return copy;
}

}  // namespace flashmask::capi
