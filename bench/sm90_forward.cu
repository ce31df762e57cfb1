// Forward kernel on the twelve benchmark masks: burst and sustained times, checked against float64 rows, as JSON.
//
//   sm90_forward [--n 8192,32768] [--mask causal,document] [--workload histogram] [--head-dim 128] [--batch 4]
//                [--heads 16] [--kv-heads 16] [--bitmaps 0] [--sustained 1]
//                [--tile auto,192x80,192x64,24x80]   auto: what choose_forward_tile() names; 24x80 packs 8 query heads
//                [--rule minmax,exact]           rules of the tile map
//                [--mask-batch 4] [--mask-heads 16] [--sections 1]     matrices of the mask; 0: their row tiles
//                                                are drawn together, not in sections of what L2 holds
//
// `ms` is the kernel with a prebuilt tile map, `build_ms` the map's refill, `once_ms` both queued together every time:
// a call that keeps no map; medians of bursts (src/sm90/device/timing.hpp). `chosen`: the tile is what "auto" names.
// Every tile of --tile is timed on a mask before the next mask, so that tiles are compared on one card in one state.
// Sustained: the median of batches without idle, and the clock of the multiprocessors in one more of them.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/device_tensor.hpp"
#include "device/naive_reference.cuh"
#include "flashmask/builders.hpp"
#include "flashmask/sm90.hpp"
#include "flashmask/tile.hpp"
#include "format/workload.hpp"
#include "forward_rows.cuh"
#include "sm90/device/query.hpp"
#include "sm90/device/timing.hpp"
#include "sm90/forward/limits.hpp"
#include "sm90/forward/section.hpp"
#include "sm90/tile_map/device_map.hpp"
#include "sm90/tile_map/host_map.hpp"

namespace flashmask::bench {
namespace {

using device::DeviceBuffer;
using device::DeviceMaskVectors;
using device::DeviceTensor;
using device::Layout;
using device::require;
using T = __nv_bfloat16;

struct Options {
  std::vector<std::string> lengths{"8192", "32768"};
  std::vector<std::string> masks;
  std::vector<std::string> tiles{"auto"};  ///< auto: what choose_forward_tile() names
  std::vector<std::string> rules{"minmax"};
  std::vector<std::string> sections{"1"};
  std::int64_t mask_batch = 1, mask_heads = 1;
  std::string workload;  ///< documents of this generator instead of the public benchmark's
  std::int64_t head_dim = 128, heads = 0, kv_heads = 0, batch = 0;
  bool sustained = false;
  bool bitmaps = true;  ///< bit patterns of partial blocks in the tile map, else generated in the kernel
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

Options parse(int argc, char** argv) {
  Options o;
  const std::map<std::string, std::function<void(const std::string&)>> options{
      {"--n", [&](const std::string& value) { o.lengths = split(value); }},
      {"--mask", [&](const std::string& value) { o.masks = split(value); }},
      {"--head-dim", [&](const std::string& value) { o.head_dim = std::stoll(value); }},
      {"--heads", [&](const std::string& value) { o.heads = std::stoll(value); }},
      {"--kv-heads", [&](const std::string& value) { o.kv_heads = std::stoll(value); }},
      {"--batch", [&](const std::string& value) { o.batch = std::stoll(value); }},
      {"--tile", [&](const std::string& value) { o.tiles = split(value); }},
      {"--rule", [&](const std::string& value) { o.rules = split(value); }},
      {"--sections", [&](const std::string& value) { o.sections = split(value); }},
      {"--mask-batch", [&](const std::string& value) { o.mask_batch = std::stoll(value); }},
      {"--mask-heads", [&](const std::string& value) { o.mask_heads = std::stoll(value); }},
      {"--workload", [&](const std::string& value) { o.workload = value; }},
      {"--bitmaps", [&](const std::string& value) { o.bitmaps = value != "0"; }},
      {"--sustained", [&](const std::string& value) { o.sustained = value != "0"; }},
  };
  for (int i = 1; i < argc; i += 2) {
    const auto option = options.find(argv[i]);
    if (option == options.end() || i + 1 == argc) {
      throw std::invalid_argument(std::string(argv[i]) +
                                  " is no option with a value; the head of the source lists them");
    }
    option->second(argv[i + 1]);
  }
  if (o.masks.empty()) {
    for (const masks::BuilderName& b : masks::builder_names().subspan(0, 12)) o.masks.emplace_back(b.name);
  }
  return o;
}

/// Documents of a generator, or the first list of the public benchmark's packs for this length.
masks::BuilderOptions mask_options(const std::string& workload, std::int64_t n) {
  const std::string spec = workload.empty() ? "pack:" + std::to_string(n) + ":0" : workload;
  return format::builder_options(format::generate(spec, {.rows = n}));
}

/// Reads the clock of a multiprocessor against the global timer while other work runs.
__global__ void read_clock(std::uint64_t* out) {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  out[0] = clock64();
  out[1] = time;
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

struct Case {
  AttentionShape shape;
  sm90::Stream stream;
  DeviceTensor<T> q, k, v, out;
  DeviceBuffer<float> lse;
  DeviceBuffer<std::uint8_t> workspace{static_cast<std::int64_t>(sm90::forward_workspace_bytes())};
  sm90::ForwardArguments arguments;

  explicit Case(const AttentionShape& s) : shape(s), lse(s.batch * s.query_heads * s.rows) {
    q = DeviceTensor<T>(s.batch, s.rows, s.query_heads, s.head_dim);
    k = DeviceTensor<T>(s.batch, s.columns, s.kv_heads, s.head_dim);
    v = DeviceTensor<T>(s.batch, s.columns, s.kv_heads, s.head_dim);
    out = DeviceTensor<T>(s.batch, s.rows, s.query_heads, s.head_dim);
    device::fill_normal(q, 11), device::fill_normal(k, 12), device::fill_normal(v, 13);
    require(cudaDeviceSynchronize(), "inputs");
    sm90::prepare_workspace(workspace.data(), stream.get());
    arguments.shape = s, arguments.stream = stream.get();
    arguments.q = q.view(), arguments.k = k.view(), arguments.v = v.view(), arguments.out = out.mutable_view();
    arguments.lse = lse.data(), arguments.workspace = workspace.data();
  }
};

double burst(const Case& c, const std::function<void()>& launch) {
  return median(sm90::time_burst(c.stream, launch, 3, 0));
}

struct Sustained {
  double ms, clock_ghz;
};

Sustained sustained(const Case& c, const std::function<void()>& launch, double ms_each) {
  const double ms = median(sm90::time_sustained(c.stream, launch, ms_each));
  const DeviceBuffer<std::uint64_t> readings(4);
  read_clock<<<1, 1, 0, c.stream.get()>>>(readings.data());
  for (double queued = 0; queued < 45; queued += ms) launch();
  read_clock<<<1, 1, 0, c.stream.get()>>>(readings.data() + 2);
  c.stream.synchronise();
  const std::vector<std::uint64_t> r = readings.download();
  return {ms, static_cast<double>(r[2] - r[0]) / static_cast<double>(r[3] - r[1])};
}

/// Errors over 96 sampled rows: {out, lse}.
std::pair<double, double> sample_errors(const Case& c, const MaskView& mask) {
  const AttentionShape& s = c.shape;
  std::vector<std::int64_t> samples;
  const std::int64_t all = s.batch * s.query_heads * s.rows;
  std::uint64_t state = 7;
  for (int i = 0; i < 94; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    samples.push_back(static_cast<std::int64_t>((state >> 11) % static_cast<std::uint64_t>(all)));
  }
  samples.push_back(0), samples.push_back(all - 1);
  const DeviceBuffer<std::int64_t> rows(samples);
  const DeviceBuffer<double> errors(2 * static_cast<std::int64_t>(samples.size()));
  const auto bytes = static_cast<std::size_t>(s.columns) * sizeof(float);
  if (bytes > 200000) return {-1, -1};
  require(cudaFuncSetAttribute(check_rows<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200000), "attribute");
  check_rows<T><<<static_cast<unsigned>(samples.size()), 128, bytes>>>(
      c.q.data(), c.k.data(), c.v.data(), c.out.data(), c.lse.data(), s, mask, rows.data(), errors.data());
  require(cudaDeviceSynchronize(), "check_rows");
  std::pair<double, double> worst{0, 0};
  const std::vector<double> e = errors.download();
  for (std::size_t i = 0; i < e.size(); i += 2) {
    worst.first = std::max(worst.first, e[i]), worst.second = std::max(worst.second, e[i + 1]);
  }
  return worst;
}

TileShape tile_named(const std::string& name, const ColumnMask& mask, const AttentionShape& s) {
  if (name == "auto") return sm90::choose_forward_tile(mask, s);
  TileShape tile;
  if (std::sscanf(name.c_str(), "%dx%d", &tile.block_m, &tile.block_n) != 2) {
    throw std::invalid_argument("--tile takes auto or block_m x block_n, e.g. 192x64, got " + name);
  }
  return tile;
}

TileRule rule_named(const std::string& name) {
  if (name != "minmax" && name != "exact") throw std::invalid_argument("--rule takes minmax or exact, got " + name);
  return name == "exact" ? TileRule::exact : TileRule::minmax;
}

/// The map that is timed, and the kernel made for its tile.
struct Subject {
  TileShape tile;
  TileRule rule = TileRule::minmax;
  bool sections = false;  ///< of the matrices of its map

  [[nodiscard]] sm90::MapForm form() const { return {sm90::forward_pass::packed_heads_of(tile), rule}; }
};

std::vector<Subject> subjects(const Options& o, const ColumnMask& mask, const AttentionShape& s) {
  std::vector<Subject> all;
  for (const std::string& tile : o.tiles) {
    for (const std::string& rule : o.rules) {
      for (const std::string& sections : o.sections) {
        all.push_back({tile_named(tile, mask, s), rule_named(rule), sections != "0"});
      }
    }
  }
  return all;
}

struct Timing {
  double ms, build_ms, once_ms;
};

void print_result(const AttentionShape& s, const std::string& name, const ColumnMask& mask, const Subject& subject,
                  std::uint64_t blocks, const Timing& t, std::pair<double, double> flop,
                  std::pair<double, double> errors) {
  const auto number = [](const char* key, std::int64_t value) {
    std::printf(", \"%s\": %lld", key, static_cast<long long>(value));
  };
  std::printf("{\"mask\": \"%s\", \"rule\": \"%s\"", name.c_str(),
              subject.rule == TileRule::exact ? "exact" : "minmax");
  number("n", s.rows), number("batch", s.batch), number("heads", s.query_heads), number("kv_heads", s.kv_heads);
  number("head_dim", s.head_dim), number("block_m", subject.tile.block_m), number("block_n", subject.tile.block_n);
  // Blocks in the map's row lists: ms / (blocks x block_n) of two tiles on one mask, blocks a head, is the charge of
  // one.
  number("blocks", static_cast<std::int64_t>(blocks));
  std::printf(", \"sections\": %s", subject.sections ? "true" : "false");
  std::printf(", \"chosen\": %s", sm90::choose_forward_tile(mask, s) == subject.tile ? "true" : "false");
  std::printf(", \"ms\": %.4f, \"build_ms\": %.4f, \"once_ms\": %.4f", t.ms, t.build_ms, t.once_ms);
  std::printf(", \"tflops_tile\": %.1f, \"tflops_element\": %.1f, \"once_tflops_tile\": %.1f", flop.first / t.ms * 1e-9,
              flop.second / t.ms * 1e-9, flop.first / t.once_ms * 1e-9);
  std::printf(", \"out_error\": %.2e, \"lse_error\": %.2e", errors.first, errors.second);
}

void run_mask(const Options& o, Case& c, const std::string& name, const ColumnMask& mask, const Subject& subject) {
  const DeviceMaskVectors vectors(mask.view());
  sm90::DeviceTileMap::Options map_options;
  map_options.form = subject.form();
  if (subject.sections) map_options.section = sm90::forward_pass::matrices_a_section(c.shape, mask.shape());
  map_options.capacity =
      sm90::default_capacity(mask.shape(), subject.tile, sm90::forward_pass::bitmap_bytes, map_options.form);
  if (!o.bitmaps) map_options.capacity->bitmaps = 0;
  sm90::DeviceTileMap device_mask(mask.shape(), subject.tile, map_options);
  const sm90::DeviceVectors raw{vectors.lts.data(), vectors.lte.data(), vectors.uts.data(), vectors.ute.data()};
  device_mask.refill(raw, c.stream.get());
  c.arguments.map = &device_mask.view();
  c.out.poison(), c.lse.poison();
  require(cudaDeviceSynchronize(), "poison");
  const auto launch = [&] { sm90::forward(c.arguments); };
  Timing t{};
  t.ms = burst(c, launch);
  const std::pair<double, double> errors = sample_errors(c, vectors.view());
  t.build_ms = burst(c, [&] { device_mask.refill(raw, c.stream.get()); });
  t.once_ms = burst(c, [&] { device_mask.refill(raw, c.stream.get()), launch(); });
  sm90::check_workspace(c.workspace.data(), c.stream.get());
  const AttentionShape& s = c.shape;
  const double flop = 4.0 * static_cast<double>(s.head_dim * s.batch * s.query_heads) * static_cast<double>(s.rows) *
                      static_cast<double>(s.columns);
  const double tile_flop = flop * tile_density(mask);
  print_result(s, name, mask, subject, device_mask.read_counts(c.stream.get()).row_blocks_visited, t,
               {tile_flop, flop * element_density(mask)}, errors);
  if (o.sustained) {
    const Sustained steady = sustained(c, launch, t.ms);
    std::printf(", \"sustained_ms\": %.4f, \"sustained_tflops_tile\": %.1f, \"clock_ghz\": %.3f", steady.ms,
                tile_flop / steady.ms * 1e-9, steady.clock_ghz);
  }
  std::printf("}");
  std::fflush(stdout);
}

void run_length(const Options& o, std::int64_t n, bool& first) {
  const std::int64_t batch = o.batch > 0 ? o.batch : std::max<std::int64_t>(32768 / n, 1);
  const std::int64_t heads = o.heads > 0 ? o.heads : (n > 65536 ? 8 : 16);
  Case c({batch, n, n, heads, o.kv_heads > 0 ? o.kv_heads : heads, o.head_dim});
  masks::BuilderOptions options = mask_options(o.workload, n);
  options.batch = o.mask_batch, options.mask_heads = o.mask_heads;
  for (const std::string& name : o.masks) {
    const ColumnMask mask = masks::build(name, options);
    for (const Subject& subject : subjects(o, mask, c.shape)) {
      std::printf(first ? "\n  " : ",\n  ");
      first = false;
      run_mask(o, c, name, mask, subject);
    }
  }
}

}  // namespace
}  // namespace flashmask::bench

int main(int argc, char** argv) {
  try {
    flashmask::sm90::require_device();
    const flashmask::bench::Options options = flashmask::bench::parse(argc, argv);
    bool first = true;
    std::printf("[");
    for (const std::string& n : options.lengths) flashmask::bench::run_length(options, std::stoll(n), first);
    std::printf("\n]\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sm90_forward: %s\n", e.what());
    return 1;
  }
  return 0;
}
