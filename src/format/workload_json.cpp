// The file format "flashmask.workload", version 1 (docs/formats.md).
#include "format/packing_json.hpp"

namespace flashmask::format {
namespace {

constexpr std::int64_t kVersion = 1;

}  // namespace

std::string to_json(const Workload& workload) {
  Json::Array batch;
  for (const PackedRow& row : workload.batch) batch.push_back(to_json_value(row));
  Json value;
  value.set("format", "flashmask.workload").set("version", kVersion);
  value.set("name", workload.name).set("mask", workload.mask).set("rows", workload.rows).set("batch", std::move(batch));
  return value.dump() + "\n";
}

Workload parse_workload(std::string_view text, std::string_view source) {
  const Json value = parse_json(text, source);
  Fields fields(value, std::string(source));
  fields.header("flashmask.workload", kVersion);
  Workload workload;
  workload.name = fields.optional_name("name").value_or(std::string(source));
  workload.mask = fields.optional_name("mask").value_or("causal_document");
  workload.rows = fields.integer("rows", kTokenRange);
  workload.batch = parse_packed_rows(fields.required("batch"), fields.path_of("batch"));
  fields.finish();
  naming(source, [&] { validate(workload); });
  return workload;
}

}  // namespace flashmask::format
