// What `run` and `bench` check before work on a GPU, and what they say about it afterwards.
#pragma once

#include <string>

#include "attention_options.hpp"
#include "format/json.hpp"
#include "sm90_engine.hpp"

namespace flashmask::app {

inline bool on_sm90(const AttentionOptions& options) {
  return options.backend == "sm90";
}

/// With --backend sm90: throws naming the option that the kernels cannot serve. What build and machine lack is
/// require_sm90()'s to say, next.
void check_backend(const AttentionOptions& options);

/// Member "sm90": device, driver, forward_tile and backward_tile [rows, columns], map_ms {forward, backward}.
format::Json sm90_json(const Sm90Report& report);
/// "NVIDIA H200, driver 580.159.04"
std::string device_text(const Sm90Report& report);
/// "192 x 80 forward, 64 x 128 backward, classified in 0.027 ms and 0.03 ms"
std::string kernel_tiles_text(const Sm90Report& report);

}  // namespace flashmask::app
