// Backward on the twelve benchmark masks: burst and sustained times of preprocess + main + dQ convert, checked against
// float64 on sampled rows and columns, as one JSON object a line.
//
//   sm90_backward [--n 8192,32768] [--mask causal,document] [--head-dim 128] [--heads 16] [--kv-heads 16]
//                 [--batch 4] [--sustained 0] [--deterministic 0]
//                 [--paired 0,1]                           tiles of 128 or 256 columns: one CTA or two a work block
//                 [--section 0] [--light -1] [--parts 0]   lists, all combinations are compared; 0: the library's
//                                                          choice (see BackwardCall)
//
// Burst: 0.5 s idle, 3 warm-ups, 9 launches back to back (5 above 40 ms), median of event pairs. Sustained: batches of
// at least 45 ms without idle, median of six, the variants taking turns: at the power cap they then share one clock, so
// run a variant in a call of its own to see what its energy allows. The mask "nothing" hides all: what preprocess
// and convert alone cost.
#include <cuda_bf16.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "device/device_tensor.hpp"
#include "device/naive_reference.cuh"
#include "flashmask/builders.hpp"
#include "flashmask/tile.hpp"
#include "format/workload.hpp"
#include "sm90/backward/launch.hpp"
#include "sm90/device/query.hpp"
#include "sm90/tile_map/device_map.hpp"

namespace flashmask::bench {
namespace {

using device::DeviceBuffer;
using device::DeviceMaskVectors;
using device::DeviceTensor;
using device::require;
using T = __nv_bfloat16;

struct Options {
  std::vector<std::string> lengths{"8192", "32768"};
  std::vector<std::string> masks;
  std::int64_t head_dim = 128, heads = 0, kv_heads = 0, batch = 0;
  bool sustained = false, deterministic = false;
  std::vector<std::string> sections{"0"}, light{"-1"}, parts{"0"}, fronts{"0"}, paired{"0"};
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
    if (key == "--sustained") o.sustained = value != "0";
    if (key == "--deterministic") o.deterministic = value != "0";
    if (key == "--section") o.sections = split(value);
    if (key == "--light") o.light = split(value);
    if (key == "--parts") o.parts = split(value);
    if (key == "--front") o.fronts = split(value);
    if (key == "--paired") o.paired = split(value);
  }
  if (o.masks.empty()) {
    for (const masks::BuilderName& b : masks::builder_names().subspan(0, 12)) o.masks.emplace_back(b.name);
  }
  return o;
}

ColumnMask build_mask(const std::string& name, std::int64_t n) {
  if (name == "nothing") {
    ColumnMask mask = masks::full({1, 1, n, n});
    const auto rows = static_cast<std::int32_t>(n);
    for (std::int64_t j = 0; j < n; ++j) mask.set(0, 0, j, {rows, 0, 0, rows});
    return mask;
  }
  return masks::build(name, format::builder_options(format::generate("pack:" + std::to_string(n) + ":0")));
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

/// LSE of normal deviates is about ln(visible) + 1/2: what the softmax of a training step looks like to the backward.
__global__ void fill_lse(float* lse, const std::int64_t* counts, std::int64_t rows, std::int64_t heads) {
  const std::int64_t n = rows * heads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t c = counts[i % rows];
    lse[i] = c == 0 ? -INFINITY : logf(static_cast<float>(c)) + 0.5F;
  }
}

struct Sample {
  AttentionShape s;
  const T *q, *k, *v, *out, *dout, *dq, *dk, *dv;
  const float* lse;
  MaskView mask;
};

__device__ double dot(const T* a, const T* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t d = 0; d < n; ++d)
    sum += static_cast<double>(static_cast<float>(a[d])) * static_cast<double>(static_cast<float>(b[d]));
  return sum;
}

/// P and dS of one cell of (batch, query head) in float64.
__device__ double2 cell(const Sample& c, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const AttentionShape& s = c.s;
  const HiddenRows hidden{c.mask.lts[j], c.mask.lte[j], c.mask.uts[j], c.mask.ute[j]};
  if (hidden.hides(static_cast<std::int32_t>(i))) return {0, 0};
  const std::int64_t at = ((b * s.rows + i) * s.query_heads + h) * s.head_dim;
  const std::int64_t key = ((b * s.columns + j) * s.kv_heads + h / (s.query_heads / s.kv_heads)) * s.head_dim;
  const double scale = 1 / sqrt(static_cast<double>(s.head_dim));
  const double p = exp(dot(c.q + at, c.k + key, s.head_dim) * scale -
                       static_cast<double>(c.lse[(b * s.query_heads + h) * s.rows + i]));
  return {p, p * (dot(c.dout + at, c.v + key, s.head_dim) - dot(c.dout + at, c.out + at, s.head_dim)) * scale};
}

/// One CTA a sample: relative error (norm over the row) of dQ of a row, or of dK and dV of a column.
__global__ void check_samples(Sample c, const std::int64_t* samples, double* errors) {
  extern __shared__ double sums[];  // [3][head_dim]
  const AttentionShape& s = c.s;
  const std::int64_t n = blockIdx.x, pick = samples[n];
  const std::int64_t position = pick % s.rows, h = pick / s.rows % s.query_heads, b = pick / s.rows / s.query_heads;
  const std::int64_t group = s.query_heads / s.kv_heads, kv = h / group;
  for (std::int64_t d = threadIdx.x; d < 3 * s.head_dim; d += blockDim.x) sums[d] = 0;
  __syncthreads();
  for (std::int64_t other = threadIdx.x; other < s.rows; other += blockDim.x) {
    const double2 row = cell(c, b, h, position, other);
    const T* key = c.k + ((b * s.columns + other) * s.kv_heads + kv) * s.head_dim;
    for (std::int64_t d = 0; row.y != 0 && d < s.head_dim; ++d) {
      const std::int64_t e = (d + threadIdx.x) % s.head_dim;
      atomicAdd(&sums[e], row.y * static_cast<double>(static_cast<float>(key[e])));
    }
    for (std::int64_t g = kv * group; g < (kv + 1) * group; ++g) {
      const double2 column = cell(c, b, g, other, position);
      const std::int64_t at = ((b * s.rows + other) * s.query_heads + g) * s.head_dim;
      for (std::int64_t d = 0; column.x != 0 && d < s.head_dim; ++d) {
        const std::int64_t e = (d + threadIdx.x) % s.head_dim;
        atomicAdd(&sums[s.head_dim + e], column.y * static_cast<double>(static_cast<float>(c.q[at + e])));
        atomicAdd(&sums[2 * s.head_dim + e], column.x * static_cast<double>(static_cast<float>(c.dout[at + e])));
      }
    }
  }
  __syncthreads();
  if (threadIdx.x >= 3) return;
  const T* got = threadIdx.x == 0
                     ? c.dq + ((b * s.rows + position) * s.query_heads + h) * s.head_dim
                     : (threadIdx.x == 1 ? c.dk : c.dv) + ((b * s.columns + position) * s.kv_heads + kv) * s.head_dim;
  double off = 0, norm = 0;
  for (std::int64_t d = 0; d < s.head_dim; ++d) {
    const double want = sums[threadIdx.x * s.head_dim + d], g = static_cast<float>(got[d]);
    off += (g - want) * (g - want), norm += want * want;
  }
  errors[3 * n + threadIdx.x] = off == 0 ? 0 : norm == 0 ? INFINITY : sqrt(off / norm);
}

struct Case {
  AttentionShape shape;
  DeviceTensor<T> q, k, v, out, dout, dq, dk, dv;
  DeviceBuffer<float> lse;

  explicit Case(const AttentionShape& s) : shape(s), lse(s.batch * s.query_heads * s.rows) {
    const auto rows = [&] { return DeviceTensor<T>(s.batch, s.rows, s.query_heads, s.head_dim); };
    const auto columns = [&] { return DeviceTensor<T>(s.batch, s.columns, s.kv_heads, s.head_dim); };
    q = rows(), out = rows(), dout = rows(), dq = rows();
    k = columns(), v = columns(), dk = columns(), dv = columns();
    device::fill_normal(q, 11), device::fill_normal(k, 12), device::fill_normal(v, 13);
    device::fill_normal(out, 14, 0.02F), device::fill_normal(dout, 15);
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

/// Of each variant, milliseconds a launch.
std::vector<double> sustained(const std::vector<std::function<void()>>& launches, double ms_each) {
  const int count = std::max(1, static_cast<int>(std::ceil(45 / ms_each)));
  std::vector<std::vector<double>> batches(launches.size());
  for (int batch = 0; batch < 8; ++batch) {
    for (std::size_t v = 0; v < launches.size(); ++v) {
      const std::vector<double> ms = time_launches(
          [&] {
            for (int i = 0; i < count; ++i) launches[v]();
          },
          1);
      if (batch >= 2) batches[v].push_back(ms[0] / count);
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& b : batches) medians.push_back(median(b));
  return medians;
}

std::string sample_errors(const Case& c, const MaskView& mask) {
  const AttentionShape& s = c.shape;
  std::vector<std::int64_t> samples;
  std::uint64_t state = 7;
  for (int i = 0; i < 24; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    samples.push_back(
        static_cast<std::int64_t>((state >> 11) % static_cast<std::uint64_t>(s.batch * s.query_heads * s.rows)));
  }
  const DeviceBuffer<std::int64_t> picks(samples);
  const DeviceBuffer<double> errors(3 * static_cast<std::int64_t>(samples.size()));
  check_samples<<<static_cast<unsigned>(samples.size()), 512, 3 * 8 * s.head_dim>>>(
      {s, c.q.data(), c.k.data(), c.v.data(), c.out.data(), c.dout.data(), c.dq.data(), c.dk.data(), c.dv.data(),
       c.lse.data(), mask},
      picks.data(), errors.data());
  require(cudaDeviceSynchronize(), "check_samples");
  double worst[3] = {};
  const std::vector<double> e = errors.download();
  for (std::size_t i = 0; i < e.size(); ++i) worst[i % 3] = e[i] == e[i] ? std::max(worst[i % 3], e[i]) : INFINITY;
  char text[128];
  std::snprintf(text, sizeof text, "\"dq\": %.1e, \"dk\": %.1e, \"dv\": %.1e", worst[0], worst[1], worst[2]);
  return text;
}

/// One way to run one case, ready to launch.
struct Variant {
  sm90::backward_pass::BackwardCall call;
  DeviceBuffer<std::uint8_t> workspace;

  void launch() const { sm90::backward_pass::queue_backward(call, workspace.data(), nullptr); }
};

Variant make_variant(const Options& o, const Case& c, const sm90::TileMapView& map) {
  Variant v;
  sm90::backward_pass::BackwardCall& call = v.call;
  call.shape = c.shape, call.map = map, call.lse = c.lse.data();
  call.q = c.q.view(), call.k = c.k.view(), call.v = c.v.view(), call.out = c.out.view(), call.dout = c.dout.view();
  call.dq = c.dq.mutable_view(), call.dk = c.dk.mutable_view(), call.dv = c.dv.mutable_view();
  call.scale = 1 / std::sqrt(static_cast<float>(o.head_dim));
  call.deterministic = o.deterministic;
  return v;
}

/// Appends every combination of the options that are lists.
void append_variants(const Options& o, const Case& c, const sm90::TileMapView& map, std::vector<Variant>& variants) {
  for (const std::string& section : o.sections) {
    for (const std::string& light : o.light) {
      for (const std::string& parts : o.parts) {
        for (const std::string& front : o.fronts) {
          Variant v = make_variant(o, c, map);
          v.call.shared_front = std::stoi(front);
          v.call.section_heads = std::stoi(section), v.call.light_percent = std::stoi(light),
          v.call.parts = std::stoi(parts);
          const std::int64_t matrices = std::int64_t{map.batch} * map.heads;
          v.workspace = DeviceBuffer<std::uint8_t>(static_cast<std::int64_t>(
              sm90::backward_pass::workspace_layout(c.shape, matrices, o.deterministic, v.call.parts).bytes));
          variants.push_back(std::move(v));
        }
      }
    }
  }
}

struct Figures {
  double burst_ms, sustained_ms;
  double tile_gflop, exact_gflop;  ///< in the tile convention, and of the visible cells
  std::string errors;
};

void print(const Variant& v, const std::string& mask, const Figures& f) {
  const AttentionShape& s = v.call.shape;
  std::printf(
      "{\"mask\": \"%s\", \"n\": %lld, \"head_dim\": %lld, \"heads\": \"%lld:%lld\", "
      "\"paired\": %d, \"section\": %d, \"light\": %d, \"parts\": %d, \"front\": %d, \"deterministic\": %d, "
      "\"burst_ms\": %.4f, "
      "\"burst_tflops\": %.0f, "
      "\"burst_exact_tflops\": %.0f, \"sustained_ms\": %.4f, \"sustained_tflops\": %.0f, \"error_word\": %u, %s}\n",
      mask.c_str(), static_cast<long long>(s.rows), static_cast<long long>(s.head_dim),
      static_cast<long long>(s.query_heads), static_cast<long long>(s.kv_heads), v.call.map.block_n / 128 - 1,
      v.call.section_heads, v.call.light_percent, v.call.parts, v.call.shared_front, v.call.deterministic ? 1 : 0,
      f.burst_ms, f.tile_gflop / f.burst_ms, f.exact_gflop / f.burst_ms, f.sustained_ms,
      f.sustained_ms > 0 ? f.tile_gflop / f.sustained_ms : 0,
      sm90::backward_pass::read_error(v.workspace.data(), nullptr), f.errors.c_str());
  std::fflush(stdout);
}

void run(const Options& o, std::int64_t n) {
  const std::int64_t heads = o.heads > 0 ? o.heads : n > 32768 ? 8 : 16;
  const std::int64_t kv_heads = o.kv_heads > 0 ? o.kv_heads : heads;
  const std::int64_t batch = o.batch > 0 ? o.batch : std::max<std::int64_t>(1, 32768 / n);
  Case c({batch, n, n, heads, kv_heads, o.head_dim});
  for (const std::string& name : o.masks) {
    const ColumnMask one = build_mask(name, n);
    const DeviceMaskVectors vectors(one.view());
    const DeviceBuffer<std::int64_t> counts(one.row_counts(0, 0));
    fill_lse<<<1024, 256>>>(c.lse.data(), counts.data(), n, batch * heads);
    std::vector<sm90::DeviceTileMap> maps;
    std::vector<Variant> variants;
    for (const std::string& paired : o.paired) {
      maps.emplace_back(vectors.shape, TileShape{64, paired == "0" ? 128 : 256});
      maps.back().refill({vectors.lts.data(), vectors.lte.data(), vectors.uts.data(), vectors.ute.data()}, nullptr);
      append_variants(o, c, maps.back().view(), variants);
    }
    const double flop =
        10.0 * static_cast<double>(o.head_dim * heads * batch) * static_cast<double>(n) * static_cast<double>(n) * 1e-9;
    std::vector<Figures> figures;
    std::vector<std::function<void()>> launches;
    for (const Variant& v : variants) {
      c.dq.poison(), c.dk.poison(), c.dv.poison();
      launches.emplace_back([&v] { v.launch(); });
      const double ms = burst(launches.back());
      figures.push_back({ms, 0, name == "nothing" ? 0 : flop * tile_density(one), flop * element_density(one),
                         sample_errors(c, vectors.view())});
    }
    if (o.sustained) {
      const std::vector<double> steady = sustained(launches, figures[0].burst_ms);
      for (std::size_t i = 0; i < figures.size(); ++i) figures[i].sustained_ms = steady[i];
    }
    for (std::size_t i = 0; i < figures.size(); ++i) print(variants[i], name, figures[i]);
  }
}

}  // namespace
}  // namespace flashmask::bench

int main(int argc, char** argv) {
  try {
    flashmask::sm90::require_device();
    const flashmask::bench::Options options = flashmask::bench::parse(argc, argv);
    for (const std::string& n : options.lengths) flashmask::bench::run(options, std::stoll(n));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sm90_backward: %s\n", e.what());
    return 1;
  }
  return 0;
}
