// Benchmark results in the schema that CPU, GPU and peers share (docs/bench-schema.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flashmask/attention.hpp"
#include "format/json.hpp"
#include "problem.hpp"
#include "sm90_engine.hpp"

namespace flashmask::app {

struct Spread {
  double median = 0, minimum = 0, maximum = 0;
};
/// Of at least one sample.
Spread spread_of(std::vector<double> samples);

/// One mask and shape, all samples in milliseconds.
struct BenchResult {
  std::string mask, builder;
  std::uint64_t digest = 0;
  std::int64_t visible_cells = 0, mask_heads = 1;
  AttentionShape shape;
  DType dtype = DType::bf16;
  Work work;
  format::Json tiles;  ///< members of set_tiles
  std::vector<double> forward, backward;
  std::vector<double> forward_sustained, backward_sustained;  ///< on a GPU: a launch in batches without idle
  std::optional<Sm90Report> device;                           ///< on a GPU
};

struct BenchProtocol {
  std::string clock;
  int warmups = 0;
  int repeats = 0;
  std::string sustained{};  ///< how, on a GPU
};

/// The whole document, format "flashmask.bench" version 1; peer slots are empty.
format::Json bench_json(const std::vector<BenchResult>& results, const std::string& backend, int threads,
                        const BenchProtocol& protocol);

/// Members "machine": cpu, cores, memory_gib, system, compiler; "gpu" and "driver" are null without one.
format::Json machine_json(const std::optional<Sm90Report>& device = {});

}  // namespace flashmask::app
