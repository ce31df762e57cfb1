// Heads, head_dim, dtype, backend and threads as options: what `run` and `bench` share.
#pragma once

#include <string>

#include "flashmask/attention.hpp"
#include "format/json.hpp"
#include "problem.hpp"

namespace CLI {
class App;
}

namespace flashmask::app {

struct AttentionOptions {
  std::string heads = "8:2";
  std::int64_t head_dim = 128;
  std::string dtype = "bf16";
  std::string backend = "cpu";
  int threads = 0;
};

/// Adds --heads, --head-dim, --dtype, --backend and --threads.
void add_attention_options(CLI::App& command, AttentionOptions& options);

/// The shape of attention under a mask of this shape; throws naming --heads or --mask-heads where they do not fit
/// together.
AttentionShape shape_of(const AttentionOptions& options, const MaskShape& mask);

/// Members "shape" {batch, rows, columns, query_heads, kv_heads, head_dim, dtype} of every report.
format::Json shape_json(const AttentionShape& shape, DType dtype);
/// "batch 1, rows 8,192, heads 8:2, head_dim 128, bf16"
std::string shape_text(const AttentionShape& shape, DType dtype);

}  // namespace flashmask::app
