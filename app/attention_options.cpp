#include "attention_options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/check.hpp"
#include "given.hpp"
#include "report.hpp"

namespace flashmask::app {

void add_attention_options(CLI::App& command, AttentionOptions& options) {
  const std::string group = "Attention";
  command.add_option("--heads", options.heads, "Query heads, or query heads : KV heads")
      ->capture_default_str()
      ->group(group);
  command.add_option("--head-dim", options.head_dim, "Elements of a head")
      ->check(whole_number(1, 256))
      ->capture_default_str()
      ->group(group);
  command.add_option("--dtype", options.dtype, "bf16, fp16 or f32")
      ->check(CLI::IsMember({"bf16", "fp16", "f32"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--backend", options.backend, "cpu, or sm90: a Hopper GPU")
      ->check(CLI::IsMember({"cpu", "sm90"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--threads", options.threads, "0: FLASHMASK_THREADS if set, else one per core")
      ->check(whole_number(0, 4096))
      ->capture_default_str()
      ->group(group);
}

AttentionShape shape_of(const AttentionOptions& options, const MaskShape& mask) {
  AttentionShape shape;
  shape.batch = mask.batch;
  shape.rows = mask.rows;
  shape.columns = mask.columns;
  shape.head_dim = options.head_dim;
  parse_heads(options.heads, shape);
  const std::int64_t heads = mask.heads;
  core::check(heads == 1 || heads == shape.kv_heads || heads == shape.query_heads,
              "--mask-heads {}: expected 1, the KV heads ({}) or the query heads ({})", heads, shape.kv_heads,
              shape.query_heads);
  return shape;
}

format::Json shape_json(const AttentionShape& shape, DType dtype) {
  format::Json value;
  value.set("batch", shape.batch).set("rows", shape.rows).set("columns", shape.columns);
  value.set("query_heads", shape.query_heads).set("kv_heads", shape.kv_heads).set("head_dim", shape.head_dim);
  value.set("dtype", to_string(dtype));
  return value;
}

std::string shape_text(const AttentionShape& shape, DType dtype) {
  return fmt::format("batch {}, rows {}, columns {}, heads {}:{}, head_dim {}, {}", shape.batch, grouped(shape.rows),
                     grouped(shape.columns), shape.query_heads, shape.kv_heads, shape.head_dim, to_string(dtype));
}

}  // namespace flashmask::app
