// Where exceptions stop: every extern "C" function runs its body through `guarded`.
#pragma once

#include <algorithm>
#include <array>
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

/// Sizes that a struct had in this version of the ABI, ascending; its own is the last. A struct that grows within a
/// version gets a specialisation that keeps its earlier sizes; one that asks for more than zeros stand for, as
/// backward's workspace_bytes did, makes a new version, which knows no earlier sizes.
template <typename T>
inline constexpr std::array<std::size_t, 1> published_sizes{sizeof(T)};

/// Structs of the ABI grow at their end; a caller's older one, of a size that was published, is read up to that size,
/// the rest is zero.
template <typename T>
T sized_copy(const T* arguments, const char* name) {
  static_assert(std::is_trivially_copyable_v<T> && published_sizes<T>.back() == sizeof(T));
  const std::size_t size = required(arguments, name).struct_size;
  constexpr auto& known = published_sizes<T>;
  if (std::find(known.begin(), known.end(), size) == known.end()) {
    std::string sizes;
    for (const std::size_t one : known) sizes += (sizes.empty() ? "" : " or ") + std::to_string(one);
    core::fail(ErrorCode::invalid_argument,
               "{}.struct_size is {}: set it to sizeof the struct; this library knows {} bytes", name, size, sizes);
  }
  T copy{};
  __builtin_memcpy(&copy, arguments, size);
  return copy;
}

}  // namespace flashmask::capi
