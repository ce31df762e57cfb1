#include "bench_record.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "attention_options.hpp"
#include "flashmask/version.hpp"
#include "sm90_report.hpp"

namespace flashmask::app {
namespace {

using format::Json;

constexpr std::int64_t kVersion = 1;

/// The processor's name as the system tells it, "unknown" where it does not.
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return "unknown";
}

/// Members "time_ms" and "tflops" of samples that each did this many operations.
Json timed_json(const std::vector<double>& samples, double element, double tile) {
  const Spread spread = spread_of(samples);
  Json time, tflops, value;
  time.set("median", spread.median).set("min", spread.minimum).set("max", spread.maximum);
  time.set("samples", static_cast<std::int64_t>(samples.size()));
  tflops.set("element", element / spread.median / 1e9).set("tile", tile / spread.median / 1e9);
  value.set("time_ms", std::move(time)).set("tflops", std::move(tflops));
  return value;
}

Json pass_json(const std::vector<double>& samples, const std::vector<double>& sustained, const Work& work,
               double factor) {
  const double element = factor * work.element, tile = factor * work.tile;
  Json value = timed_json(samples, element, tile);
  if (!sustained.empty()) value.set("sustained", timed_json(sustained, element, tile));
  value.set("peers", Json::Array());
  return value;
}

Json result_json(const BenchResult& result) {
  Json mask, value;
  mask.set("name", result.mask).set("builder", result.builder).set("digest", fmt::format("{:016x}", result.digest));
  mask.set("mask_heads", result.mask_heads).set("visible_cells", result.visible_cells);
  for (const auto& [key, member] : *result.tiles.object()) mask.set(key, member);
  value.set("mask", std::move(mask)).set("shape", shape_json(result.shape, result.dtype));
  if (result.device) value.set("sm90", sm90_json(*result.device));
  value.set("forward", pass_json(result.forward, result.forward_sustained, result.work, 1));
  value.set("backward", pass_json(result.backward, result.backward_sustained, result.work, kBackwardFactor));
  return value;
}

}  // namespace

Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  const double median = samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  return {median, samples.front(), samples.back()};
}

Json machine_json(const std::optional<Sm90Report>& device) {
  constexpr double kGibibyte = 1073741824.0;
  utsname system{};
  uname(&system);
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  Json value;
  value.set("cpu", processor()).set("cores", static_cast<std::int64_t>(std::thread::hardware_concurrency()));
  value.set("memory_gib", memory / kGibibyte).set("system", fmt::format("{} {}", system.sysname, system.machine));
  value.set("compiler", __VERSION__);
  value.set("gpu", device ? Json(device->device) : Json()).set("driver", device ? Json(device->driver) : Json());
  return value;
}

Json bench_json(const std::vector<BenchResult>& results, const std::string& backend, int threads,
                const BenchProtocol& protocol) {
  Json how, value;
  Json::Array list;
  how.set("clock", protocol.clock).set("warmups", protocol.warmups).set("repeats", protocol.repeats);
  if (!protocol.sustained.empty()) how.set("sustained", protocol.sustained);
  for (const BenchResult& result : results) list.push_back(result_json(result));
  value.set("format", "flashmask.bench").set("version", kVersion).set("flashmask", FLASHMASK_VERSION_STRING);
  value.set("backend", backend).set("threads", threads);
  value.set("machine", machine_json(results.empty() ? std::nullopt : results[0].device));
  value.set("protocol", std::move(how));
  value.set("results", std::move(list));
  return value;
}

}  // namespace flashmask::app
