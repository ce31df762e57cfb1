// Forward kernel on the twelve benchmark masks: burst and sustained times, checked against float64 rows, as JSON.
//
//   sm90_forward [--n 8192,32768] [--mask causal,document] [--workload histogram] [--head-dim 128] [--batch 4]
//                [--heads 16] [--kv-heads 16] [--tile auto,192x80,192x64] [--bitmaps 0] [--sustained 1]
//                [--mask-batch 4] [--mask-heads 16] [--sections 0,1]   matrices of the mask; whether their row
//                                                tiles are drawn in sections of what L2 holds
//                [--variant default,pack8_n80]   instances to compare (src/sm90/forward/candidates), or "all" that can
//                                                run the call; --tile is for "default"
//
// `ms` is the kernel with a prebuilt tile map, `build_ms` the map's refill, `once_ms` both queued together every time:
// a call that keeps no map. Every tile of --tile is timed on a mask before the next mask, so that tiles are compared on
// one card in one state.
// Burst: 0.5 s idle, 3 warm-ups, 9 launches back to back (5 above 40 ms), median of event pairs. Sustained: batches of
// at least 45 ms without idle, median of the batches, with the clock the multiprocessors ran at.
#include <cuda_bf16.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "device/device_tensor.hpp"
#include "device/naive_reference.cuh"
#include "flashmask/builders.hpp"
#include "flashmask/sm90.hpp"
#include "flashmask/tile.hpp"
#include "format/workload.hpp"
#include "forward_rows.cuh"
#include "sm90/device/query.hpp"
#include "sm90/forward/candidates/candidates.hpp"
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
  std::vector<std::string> variants{"default"};
  std::vector<std::string> sections{"0"};
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
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--n") o.lengths = split(value);
    if (key == "--mask") o.masks = split(value);
    if (key == "--head-dim") o.head_dim = std::stoll(value);
    if (key == "--heads") o.heads = std::stoll(value);
    if (key == "--kv-heads") o.kv_heads = std::stoll(value);
    if (key == "--batch") o.batch = std::stoll(value);
    if (key == "--tile") o.tiles = split(value);
    if (key == "--variant") o.variants = split(value);
    if (key == "--sections") o.sections = split(value);
    if (key == "--mask-batch") o.mask_batch = std::stoll(value);
    if (key == "--mask-heads") o.mask_heads = std::stoll(value);
    if (key == "--workload") o.workload = value;
    if (key == "--bitmaps") o.bitmaps = value != "0";
    if (key == "--sustained") o.sustained = value != "0";
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
    sm90::prepare_workspace(workspace.data(), nullptr);
    arguments.shape = s;
    arguments.q = q.view(), arguments.k = k.view(), arguments.v = v.view(), arguments.out = out.mutable_view();
    arguments.lse = lse.data(), arguments.workspace = workspace.data();
  }
};

std::vector<double> time_launches(const std::function<void()>& launch, int count) {
  std::vector<cudaEvent_t> events(static_cast<std::size_t>(count) + 1);
  for (cudaEvent_t& e : events) require(cudaEventCreate(&e), "cudaEventCreate");
  require(cudaEventRecord(events[0]), "cudaEventRecord");
  for (int i = 0; i < count; ++i) {
    launch();
    require(cudaEventRecord(events[static_cast<std::size_t>(i) + 1]), "cudaEventRecord");
  }
  require(cudaDeviceSynchronize(), "timed launches");
  std::vector<double> ms;
  for (int i = 0; i < count; ++i) {
    float t = 0;
    require(cudaEventElapsedTime(&t, events[static_cast<std::size_t>(i)], events[static_cast<std::size_t>(i) + 1]),
            "elapsed");
    ms.push_back(t);
  }
  for (const cudaEvent_t e : events) cudaEventDestroy(e);
  return ms;
}

double burst(const std::function<void()>& launch) {
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double warm = median(time_launches(launch, 3));
  return median(time_launches(launch, warm > 40 ? 5 : 9));
}

struct Sustained {
  double ms, clock_ghz;
};

Sustained sustained(const std::function<void()>& launch, double ms_each) {
  const int count = std::max(1, static_cast<int>(std::ceil(45 / ms_each)));
  DeviceBuffer<std::uint64_t> clocks(4);
  std::vector<double> batches;
  double clock = 0;
  for (int batch = 0; batch < 8; ++batch) {
    cudaEvent_t start, stop;
    cudaEventCreate(&start), cudaEventCreate(&stop);
    read_clock<<<1, 1>>>(clocks.data());
    cudaEventRecord(start);
    for (int i = 0; i < count; ++i) launch();
    cudaEventRecord(stop);
    read_clock<<<1, 1>>>(clocks.data() + 2);
    require(cudaEventSynchronize(stop), "sustained batch");
    float t = 0;
    cudaEventElapsedTime(&t, start, stop);
    cudaEventDestroy(start), cudaEventDestroy(stop);
    if (batch < 2) continue;  // clocks still fall
    batches.push_back(t / static_cast<float>(count));
    const std::vector<std::uint64_t> c = clocks.download();
    clock = static_cast<double>(c[2] - c[0]) / static_cast<double>(c[3] - c[1]);
  }
  return {median(batches), clock};
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

TileShape tile_named(const std::string& name, const ColumnMask& mask, std::int64_t head_dim) {
  if (name == "auto") return sm90::choose_forward_tile(mask, head_dim);
  TileShape tile;
  if (std::sscanf(name.c_str(), "%dx%d", &tile.block_m, &tile.block_n) != 2) {
    throw std::invalid_argument("--tile takes auto or block_m x block_n, e.g. 192x64, got " + name);
  }
  return tile;
}

using sm90::forward_pass::Candidate;

/// What is timed: the library's kernel on maps of a tile, or a candidate on maps of its own form.
struct Subject {
  TileShape tile;
  const Candidate* candidate = nullptr;
  bool sections = false;  ///< of the matrices of its map

  [[nodiscard]] std::string_view name() const { return candidate == nullptr ? "default" : candidate->name; }
  [[nodiscard]] sm90::MapForm form() const { return candidate == nullptr ? sm90::MapForm{} : candidate->form(); }
  void launch(const sm90::ForwardArguments& arguments) const {
    if (candidate == nullptr) return sm90::forward(arguments);
    sm90::forward_pass::forward(*candidate, arguments);
  }
};

std::vector<Subject> subjects(const Options& o, const ColumnMask& mask, const AttentionShape& s) {
  std::vector<Subject> all;
  const bool every = o.variants == std::vector<std::string>{"all"};
  for (const std::string& variant : every ? std::vector<std::string>{"default"} : o.variants) {
    if (variant == "default") {
      for (const std::string& tile : o.tiles) all.push_back({tile_named(tile, mask, s.head_dim)});
    } else {
      const Candidate& candidate = sm90::forward_pass::candidate_named(variant);
      all.push_back({candidate.config.tile(), &candidate});
    }
  }
  for (const Candidate& candidate : sm90::forward_pass::candidates()) {
    if (every && candidate.takes(s, mask.shape().heads)) all.push_back({candidate.config.tile(), &candidate});
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
  std::printf("{\"mask\": \"%s\", \"variant\": \"%s\"", name.c_str(), std::string(subject.name()).c_str());
  number("n", s.rows), number("batch", s.batch), number("heads", s.query_heads), number("kv_heads", s.kv_heads);
  number("head_dim", s.head_dim), number("block_m", subject.tile.block_m), number("block_n", subject.tile.block_n);
  // Blocks in the map's row lists: ms / (blocks x block_n) of two tiles on one mask is the charge of one of them.
  number("blocks", static_cast<std::int64_t>(blocks));
  std::printf(", \"sections\": %s", subject.sections ? "true" : "false");
  std::printf(", \"chosen\": %s", sm90::choose_forward_tile(mask, s.head_dim) == subject.tile ? "true" : "false");
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
  map_options.capacity = sm90::default_capacity(mask.shape(), subject.tile, std::int64_t{128} << 20, map_options.form);
  if (!o.bitmaps) map_options.capacity->bitmaps = 0;
  sm90::DeviceTileMap device_mask(mask.shape(), subject.tile, map_options);
  const sm90::DeviceVectors raw{vectors.lts.data(), vectors.lte.data(), vectors.uts.data(), vectors.ute.data()};
  device_mask.refill(raw, nullptr);
  c.arguments.map = &device_mask.view();
  c.out.poison(), c.lse.poison();
  const auto launch = [&] { subject.launch(c.arguments); };
  Timing t{};
  t.ms = burst(launch);
  const std::pair<double, double> errors = sample_errors(c, vectors.view());
  t.build_ms = burst([&] { device_mask.refill(raw, nullptr); });
  t.once_ms = burst([&] { device_mask.refill(raw, nullptr), launch(); });
  sm90::check_workspace(c.workspace.data(), nullptr);
  const AttentionShape& s = c.shape;
  const double flop = 4.0 * static_cast<double>(s.head_dim * s.batch * s.query_heads) * static_cast<double>(s.rows) *
                      static_cast<double>(s.columns);
  const double tile_flop = flop * tile_density(mask);
  print_result(s, name, mask, subject, device_mask.read_counts(nullptr).row_blocks_visited, t,
               {tile_flop, flop * element_density(mask)}, errors);
  if (o.sustained) {
    const Sustained steady = sustained(launch, t.ms);
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
    for (Subject subject : subjects(o, mask, c.shape)) {
      for (const std::string& sections : o.sections) {
        subject.sections = sections != "0";
        std::printf(first ? "\n  " : ",\n  ");
        first = false;
        run_mask(o, c, name, mask, subject);
      }
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
