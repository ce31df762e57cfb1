// What a parser may throw at bytes from a stranger.
#pragma once

#include "flashmask/error.hpp"

namespace flashmask::fuzz {

/// Anything but flashmask::Error leaves, which libFuzzer reports.
template <typename Call>
void only_errors_of_ours(Call call) {
  try {
    call();
  } catch (const Error&) {  // refused, as it should be
  }
}

}  // namespace flashmask::fuzz
