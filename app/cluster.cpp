#include "cluster.hpp"

#include <cmath>
#include <initializer_list>

#include "core/check.hpp"
#include "format/fields.hpp"
#include "format/json.hpp"
#include "format/plan_json.hpp"

namespace flashmask::app {
namespace {

using format::Json;

/// Reads members of one object and refuses what nobody asked for.
class Members {
 public:
  Members(const Json& object, std::string where, std::initializer_list<std::string_view> known)
      : object_(object), where_(std::move(where)) {
    core::check(object.object() != nullptr, "{}: expected an object, got {}", where_, object.kind());
    for (const auto& [key, value] : *object.object()) {
      bool ours = false;
      for (const auto name : known) ours = ours || name == key;
      core::check(ours, "{}: member {} is not known", where_, format::printable(key));
    }
  }
  [[nodiscard]] const Json& child(const char* key) const {
    const Json* value = object_.find(key);
    core::check(value != nullptr, "{}: member \"{}\" is missing", where_, key);
    return *value;
  }
  [[nodiscard]] bool has(const char* key) const { return object_.find(key) != nullptr; }
  [[nodiscard]] double number(const char* key) const {
    const Json& value = child(key);
    const double x = value.number() != nullptr    ? *value.number()
                     : value.integer() != nullptr ? static_cast<double>(*value.integer())
                                                  : std::nan("");
    core::check(std::isfinite(x) && x >= 0, "{}: \"{}\" must be a number >= 0", where_, key);
    return x;
  }
  /// A latency: none, or a number of microseconds that neither vanishes nor swallows a step.
  [[nodiscard]] double microseconds(const char* key) const {
    const double x = number(key);
    core::check(x == 0 || (x >= 1e-3 && x <= 1e9), "{}: \"{}\" is {}: it must be 0 or lie in [0.001, 1e9]", where_, key,
                x);
    return x * 1e-6;
  }
  /// Of something that must take place: TFLOP/s, bytes a second.
  [[nodiscard]] double rate(const char* key) const {
    const double x = number(key);
    core::check(x >= 1e-3 && x <= 1e9, "{}: \"{}\" is {}: it must lie in [0.001, 1e9]", where_, key, x);
    return x;
  }
  [[nodiscard]] std::int64_t integer(const char* key, std::int64_t low, std::int64_t high) const {
    const std::int64_t* x = child(key).integer();
    core::check(x != nullptr && *x >= low && *x <= high, "{}: \"{}\" must be an integer from {} to {}", where_, key,
                low, high);
    return *x;
  }
  [[nodiscard]] std::string text(const char* key) const {
    const std::string* x = child(key).string();
    core::check(x != nullptr, "{}: \"{}\" must be a string", where_, key);
    return *x;
  }
  [[nodiscard]] std::string below(const char* key) const { return where_ + "." + key; }

 private:
  const Json& object_;
  std::string where_;
};

/// A number of TFLOP/s for unmasked tiles, or {"unmasked": ..., "partial": ...}.
void read_rate(const Members& tflops, const char* direction, double& unmasked, double& partial_over_unmasked) {
  if (tflops.child(direction).object() == nullptr) {
    unmasked = tflops.rate(direction);
    return;
  }
  const Members classes(tflops.child(direction), tflops.below(direction), {"unmasked", "partial"});
  unmasked = classes.rate("unmasked");
  partial_over_unmasked = unmasked / classes.rate("partial");
}

void read_link(const Members& file, const char* key, Link link, overlap::Cluster& cluster) {
  const Members members(file.child(key), file.below(key), {"gbytes_per_s", "latency_us"});
  cluster.bandwidth[static_cast<std::size_t>(link)] = members.rate("gbytes_per_s") * 1e9;
  cluster.latency[static_cast<std::size_t>(link)] = members.microseconds("latency_us");
}

}  // namespace

NamedCluster built_in_cluster() {
  NamedCluster named;
  named.name = "2 nodes of 8 H100";
  named.forward_tflops = 700;
  named.backward_tflops = 594;
  named.cluster.bandwidth = {353e9, 45e9};
  named.cluster.latency = {3e-6, 10e-6};
  return named;
}

NamedCluster read_cluster(const std::string& path) {
  const Json json = format::parse_json(format::read_file(path), path);
  const Members file(json, path,
                     {"format", "version", "name", "nodes", "gpus_per_node", "sms", "communication_sms", "tflops",
                      "calibration", "inside", "between", "sum_gbytes_per_s", "launch_us"});
  core::check(file.text("format") == "flashmask.cluster" && file.integer("version", 0, 1 << 20) == 1,
              "{}: expected \"format\": \"flashmask.cluster\", \"version\": 1", path);
  NamedCluster named = built_in_cluster();
  named.name = file.has("name") ? file.text("name") : path;
  named.nodes = file.integer("nodes", 1, 1024);
  named.gpus_per_node = file.integer("gpus_per_node", 1, 1024);
  named.cluster.sms = static_cast<std::int32_t>(file.integer("sms", 1, 4096));
  named.cluster.communication_sms = static_cast<std::int32_t>(file.integer("communication_sms", 0, 4095));
  const Members tflops(file.child("tflops"), file.below("tflops"), {"forward", "backward"});
  if (file.has("calibration")) {
    const std::string calibration = file.text("calibration");
    for (const char* direction : {"forward", "backward"}) {
      core::check(tflops.child(direction).object() == nullptr,
                  "{}: \"calibration\" gives the partial/unmasked ratio, so \"tflops.{}\" must be the rate of unmasked "
                  "tiles alone: a number",
                  path, direction);
    }
    const DirectionCosts costs = format::parse_calibration(format::read_file(calibration), calibration);
    named.forward_partial = static_cast<double>(costs.forward.partial) / static_cast<double>(costs.forward.unmasked);
    named.backward_partial = static_cast<double>(costs.backward.partial) / static_cast<double>(costs.backward.unmasked);
  }
  read_rate(tflops, "forward", named.forward_tflops, named.forward_partial);
  read_rate(tflops, "backward", named.backward_tflops, named.backward_partial);
  read_link(file, "inside", Link::inside, named.cluster);
  read_link(file, "between", Link::between, named.cluster);
  if (file.has("sum_gbytes_per_s")) named.cluster.sum_bandwidth = file.rate("sum_gbytes_per_s") * 1e9;
  if (file.has("launch_us")) named.cluster.launch = file.microseconds("launch_us");
  format::naming(path, [&] { overlap::validate(tiles_for(named, 128)); });
  return named;
}

overlap::Cluster tiles_for(const NamedCluster& named, std::int64_t head_dim) {
  overlap::Cluster cluster = named.cluster;
  const double operations = 4.0 * 128 * 128 * static_cast<double>(head_dim);  // one tile of one query head, forward
  const auto seconds = [&](double factor, double tflops, double partial) {
    const double unmasked = factor * operations / (tflops * 1e12 / named.cluster.sms);
    return overlap::TileSeconds{partial * unmasked, unmasked};
  };
  cluster.forward = seconds(1.0, named.forward_tflops, named.forward_partial);
  cluster.backward = seconds(2.5, named.backward_tflops, named.backward_partial);
  return cluster;
}

}  // namespace flashmask::app
