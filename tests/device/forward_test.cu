// The forward kernel against float64 on the device: shapes, masks, dtypes, layouts and the traps of long experience.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "device/compare.hpp"
#include "device/device_tensor.hpp"
#include "device/naive_reference.cuh"
#include "flashmask/builders.hpp"
#include "flashmask/error.hpp"
#include "flashmask/sm90.hpp"
#include "sm90/ptx/fence.cuh"
#include "sm90/tile_map/device_map.hpp"
#include "sm90/tile_map/host_map.hpp"

namespace flashmask::device {
namespace {

struct Problem {
  AttentionShape shape;
  ColumnMask mask;
  Layout layout = Layout::bshd;
  std::int32_t grid = 0;
  float spread = 1;      ///< standard deviation of q and k
  bool bitmaps = false;  ///< bit patterns of partial blocks from the tile map instead of the mask generators
  std::optional<sm90::MapCapacity> capacity{};  ///< overrides that
  std::size_t tile = 0;                         ///< index into forward_tiles()
};

struct Workspace {
  DeviceBuffer<std::uint8_t> bytes{static_cast<std::int64_t>(sm90::forward_workspace_bytes())};
  Workspace() { sm90::prepare_workspace(bytes.data(), nullptr); }
};

template <typename T>
struct Inputs {
  DeviceTensor<T> q, k, v;
  explicit Inputs(const Problem& p) {
    const AttentionShape& s = p.shape;
    q = DeviceTensor<T>(s.batch, s.rows, s.query_heads, s.head_dim, p.layout);
    k = DeviceTensor<T>(s.batch, s.columns, s.kv_heads, s.head_dim, p.layout);
    v = DeviceTensor<T>(s.batch, s.columns, s.kv_heads, s.head_dim, p.layout);
    fill_normal(q, 1, p.spread);
    fill_normal(k, 2, p.spread);
    fill_normal(v, 3, 1);
  }
};

struct Result {
  std::vector<double> out, lse;
};

sm90::DeviceTileMap make_map(const Problem& p) {
  const TileShape tile = sm90::forward_tiles(p.shape.head_dim)[p.tile];
  sm90::DeviceTileMap::Options options;
  options.capacity = sm90::default_capacity(p.mask.shape(), tile);
  if (!p.bitmaps) options.capacity->bitmaps = 0;
  if (p.capacity) options.capacity = p.capacity;
  return {p.mask.shape(), tile, options};
}

void fill_map(sm90::DeviceTileMap& map, const DeviceMaskVectors& v, cudaStream_t stream = nullptr) {
  map.refill({v.lts.data(), v.lte.data(), v.uts.data(), v.ute.data()}, stream);
}

template <typename T>
Result run(const Problem& p, const Inputs<T>& in, Workspace& workspace) {
  const AttentionShape& s = p.shape;
  DeviceTensor<T> out(s.batch, s.rows, s.query_heads, s.head_dim, p.layout);
  DeviceBuffer<float> lse(s.batch * s.query_heads * s.rows);
  const DeviceMaskVectors vectors(p.mask.view());
  sm90::DeviceTileMap mask = make_map(p);
  fill_map(mask, vectors);
  sm90::ForwardArguments a;
  a.shape = s, a.map = &mask.view(), a.grid = p.grid;
  a.q = in.q.view(), a.k = in.k.view(), a.v = in.v.view(), a.out = out.mutable_view();
  a.lse = lse.data(), a.workspace = workspace.bytes.data();
  sm90::forward(a);
  sm90::check_workspace(workspace.bytes.data(), nullptr);
  const std::vector<float> raw = lse.download();
  return {out.download(), {raw.begin(), raw.end()}};
}

template <typename T>
void check(const Problem& p, const std::string& name) {
  SCOPED_TRACE(name);
  const Inputs<T> in(p);
  // The oracle wants a mask row for every batch row.
  const std::vector<ColumnMask> copies(static_cast<std::size_t>(p.shape.batch / p.mask.shape().batch), p.mask);
  const DeviceMaskVectors vectors(masks::stack_batch(copies).view());
  NaiveInputs<T> naive{p.shape, &in.q, &in.k, &in.v, nullptr, &vectors};
  const NaiveResult exact = naive_attention<double, false>(naive);
  const NaiveResult rounded = naive_attention<float, true>(naive);
  Workspace workspace;
  const Result got = run<T>(p, in, workspace);
  const Comparison out = compare("out", got.out, exact.out, rounded.out, dtype_of<T>);
  const Comparison lse = compare("lse", got.lse, exact.lse, rounded.lse, DType::f32);
  EXPECT_TRUE(out.text.empty()) << out.text;
  EXPECT_TRUE(lse.text.empty()) << lse.text;
  std::printf("%-40s out %.2e of %.2e, lse %.2e of %.2e\n", name.c_str(), out.worst, out.allowed, lse.worst,
              lse.allowed);
}

ColumnMask named(const char* name, std::int64_t rows, std::int64_t columns = -1, std::int64_t batch = 1,
                 std::int64_t heads = 1) {
  masks::BuilderOptions options;
  options.rows = rows;
  if (columns >= 0) options.columns = columns;
  options.batch = batch, options.mask_heads = heads;
  return masks::build(name, options);
}

TEST(Forward, full_of_one_tile) {
  check<__nv_bfloat16>({{1, 192, 160, 1, 1, 128}, named("full", 192, 160)}, "full 192x160");
}
TEST(Forward, causal_of_two_tiles) {
  check<__nv_bfloat16>({{1, 256, 256, 1, 1, 128}, named("causal", 256)}, "causal 256");
}

/// With the two above, what the sanitizers run: every role, both sources of visibility, skipped and empty tiles.
TEST(Forward, small_masks_with_and_without_bitmaps) {
  for (const bool bitmaps : {false, true}) {
    Problem p{{1, 500, 500, 2, 1, 128}, named("share_question", 500)};
    p.bitmaps = bitmaps, p.grid = 2;
    check<__nv_bfloat16>(p, bitmaps ? "share_question 500 bitmaps" : "share_question 500 generated");
  }
  const masks::Packing padded({masks::Document{70}});
  check<__nv_bfloat16>({{1, 450, 450, 1, 1, 64}, masks::causal_document({1, 1, 450, 450}, padded)}, "mostly dead rows");
}

TEST(Forward, twelve_masks) {
  for (const masks::BuilderName& builder : masks::builder_names().subspan(0, 12)) {
    for (const std::int64_t n : {1024, 1000}) {
      check<__nv_bfloat16>({{2, n, n, 4, 2, 128}, named(std::string(builder.name).c_str(), n)},
                           std::string(builder.name) + " " + std::to_string(n));
    }
    Problem p{{1, 700, 700, 2, 1, 128}, named(std::string(builder.name).c_str(), 700)};
    p.bitmaps = true;
    check<__nv_bfloat16>(p, std::string(builder.name) + " 700 bitmaps");
  }
}

TEST(Forward, maps_too_small_for_bitmaps_or_runs_stay_right) {
  for (const std::int32_t bitmaps : {0, 7, 1000}) {
    for (const std::int32_t runs : {0, 9, 1000}) {
      Problem p{{2, 900, 900, 2, 2, 128}, named("share_question", 900, 900, 2)};
      p.capacity = sm90::MapCapacity{.row_runs = runs, .column_runs = 1000, .bitmaps = bitmaps};
      check<__nv_bfloat16>(p, std::to_string(bitmaps) + " bitmaps, " + std::to_string(runs) + " runs");
    }
  }
}

TEST(Forward, narrow_tiles) {
  for (const char* name : {"full", "causal", "share_question", "random_eviction"}) {
    for (const bool bitmaps : {false, true}) {
      Problem p{{1, 1000, 1000, 2, 1, 128}, named(name, 1000)};
      p.tile = 1, p.bitmaps = bitmaps;
      check<__nv_bfloat16>(p, std::string("192x64 ") + name);
      check<__half>(p, std::string("192x64 fp16 ") + name);
    }
  }
}

TEST(Forward, ragged_sizes) {
  for (const std::int64_t rows : {1, 63, 64, 65, 191, 193, 239}) {
    for (const std::int64_t columns : {1, 79, 80, 81, 127, 203, 400}) {
      check<__nv_bfloat16>({{1, rows, columns, 2, 1, 128}, named("full", rows, columns)},
                           "full " + std::to_string(rows) + "x" + std::to_string(columns));
      check<__nv_bfloat16>({{1, rows, columns, 2, 1, 128}, named("causal", rows, columns)},
                           "causal " + std::to_string(rows) + "x" + std::to_string(columns));
    }
  }
}

TEST(Forward, head_dims_and_dtypes) {
  for (const std::int64_t d : {32, 64, 80, 96, 112, 128}) {
    check<__nv_bfloat16>({{1, 500, 500, 4, 2, d}, named("causal_document", 500)}, "bf16 d=" + std::to_string(d));
    check<__half>({{1, 500, 500, 4, 2, d}, named("share_question", 500)}, "fp16 d=" + std::to_string(d));
  }
}

TEST(Forward, layouts) {
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::padded}) {
    check<__nv_bfloat16>({{2, 320, 320, 6, 2, 128}, named("causal", 320, 320, 2), layout}, "layout");
  }
}

TEST(Forward, mask_heads_and_batches) {
  for (const std::int64_t heads : {1, 2, 8}) {
    for (const std::int64_t batch : {1, 3}) {
      check<__nv_bfloat16>({{3, 400, 400, 8, 2, 128}, named("random_eviction", 400, 400, batch, heads)},
                           "mask heads " + std::to_string(heads) + " batch " + std::to_string(batch));
    }
  }
}

TEST(Forward, large_scores_are_rescaled) {
  check<__nv_bfloat16>({{1, 600, 600, 2, 2, 128}, named("full", 600), Layout::bshd, 0, 4}, "spread 4");
}

TEST(Forward, few_ctas_take_all_tiles) {
  check<__nv_bfloat16>({{2, 900, 900, 4, 2, 128}, named("causal_document", 900), Layout::bshd, 3}, "grid 3");
}

/// Q = 0: every visible column counts one, so LSE is the logarithm of their number.
TEST(Forward, count_probe) {
  for (const masks::BuilderName& builder : masks::builder_names().subspan(0, 12)) {
    const std::int64_t n = 2000;
    Problem p{{1, n, n, 1, 1, 128}, named(std::string(builder.name).c_str(), n)};
    Inputs<__nv_bfloat16> in(p);
    cudaMemset(in.q.data(), 0, n * 128 * 2);
    Workspace workspace;
    const Result got = run<__nv_bfloat16>(p, in, workspace);
    const std::vector<std::int64_t> counts = p.mask.row_counts(0, 0);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) {
        ASSERT_EQ(got.lse[i], -INFINITY) << builder.name << " row " << i;
      } else {
        ASSERT_EQ(std::llround(std::exp(got.lse[i])), counts[i]) << builder.name << " row " << i;
      }
    }
  }
}

TEST(Forward, no_columns_give_zero_and_minus_infinity) {
  check<__nv_bfloat16>({{1, 100, 0, 2, 1, 128}, named("full", 100, 0)}, "no columns");
}

/// A call whose tensors stay, to be launched again and again.
struct Call {
  Problem problem;
  Inputs<__nv_bfloat16> in;
  DeviceTensor<__nv_bfloat16> out;
  DeviceBuffer<float> lse;
  DeviceMaskVectors vectors;
  sm90::DeviceTileMap map;
  Workspace workspace;
  sm90::ForwardArguments arguments;

  explicit Call(const Problem& p)
      : problem(p),
        in(p),
        out(p.shape.batch, p.shape.rows, p.shape.query_heads, p.shape.head_dim, p.layout),
        lse(p.shape.batch * p.shape.query_heads * p.shape.rows),
        vectors(p.mask.view()),
        map(make_map(p)) {
    fill_map(map, vectors);
    require(cudaDeviceSynchronize(), "refill");
    arguments.shape = p.shape, arguments.map = &map.view(), arguments.grid = p.grid;
    arguments.q = in.q.view(), arguments.k = in.k.view(), arguments.v = in.v.view();
    arguments.out = out.mutable_view(), arguments.lse = lse.data(), arguments.workspace = workspace.bytes.data();
  }
  void poison() { out.poison(), lse.poison(); }
  Result result() {
    sm90::check_workspace(workspace.bytes.data(), arguments.stream);
    const std::vector<float> raw = lse.download();
    return {out.download(), {raw.begin(), raw.end()}};
  }
};

void expect_same(const Result& a, const Result& b) {
  EXPECT_TRUE(a.out == b.out);
  EXPECT_TRUE(a.lse == b.lse);
}

Problem documents(std::int64_t n, std::int64_t heads = 4) {
  return {{1, n, n, heads, heads, 128}, named("share_question", n)};
}

TEST(Forward, repeats_are_bitwise_equal) {
  Call call(documents(1500));
  sm90::forward(call.arguments);
  const Result first = call.result();
  for (int i = 0; i < 100; ++i) {
    call.poison();
    sm90::forward(call.arguments);
    expect_same(call.result(), first);
  }
}

TEST(Forward, two_streams_at_once_equal_serial_calls) {
  Call a(documents(1500)), b({{2, 900, 900, 8, 2, 64}, named("causal", 900, 900, 2)});
  sm90::forward(a.arguments);
  const Result serial_a = a.result();
  sm90::forward(b.arguments);
  const Result serial_b = b.result();
  cudaStream_t streams[2];
  for (cudaStream_t& s : streams) require(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreate");
  a.poison(), b.poison();
  require(cudaDeviceSynchronize(), "poison");
  a.arguments.stream = streams[0], b.arguments.stream = streams[1];
  for (int i = 0; i < 50; ++i) sm90::forward(a.arguments), sm90::forward(b.arguments);
  expect_same(a.result(), serial_a);
  expect_same(b.result(), serial_b);
  for (const cudaStream_t s : streams) cudaStreamDestroy(s);
}

TEST(Cases, A32_a_captured_graph_follows_a_mask_refilled_in_place) {
  const std::int64_t n = 16;
  const masks::Packing one({masks::Document{16}}), three({masks::Document{5}, masks::Document{5}, masks::Document{6}});
  Call call({{1, n, n, 2, 2, 128}, masks::causal_document({1, 1, n, n}, one)});
  Call other({{1, n, n, 2, 2, 128}, masks::causal_document({1, 1, n, n}, three)});
  sm90::forward(call.arguments), sm90::forward(other.arguments);
  const Result want_one = call.result(), want_three = other.result();
  cudaStream_t stream;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  call.arguments.stream = stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
  fill_map(call.map, call.vectors, stream);
  sm90::forward(call.arguments);
  require(cudaStreamEndCapture(stream, &graph), "end capture");
  require(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  for (const bool changed : {false, true, false}) {
    const MaskView view = changed ? other.problem.mask.view() : call.problem.mask.view();
    for (const auto& [to, from] : {std::pair{call.vectors.lts.data(), view.lts},
                                   {call.vectors.lte.data(), view.lte},
                                   {call.vectors.uts.data(), view.uts},
                                   {call.vectors.ute.data(), view.ute}}) {
      require(cudaMemcpy(to, from, n * sizeof(std::int32_t), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    call.poison();
    require(cudaDeviceSynchronize(), "poison");
    require(cudaGraphLaunch(executable, stream), "replay");
    expect_same(call.result(), changed ? want_three : want_one);
  }
  cudaGraphExecDestroy(executable), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
}

/// Brings chunks of K and V one after another, last chunk first, each some time after the one before.
__global__ void fake_producer(const __nv_bfloat16* k, const __nv_bfloat16* v, __nv_bfloat16* to_k, __nv_bfloat16* to_v,
                              std::int64_t chunk_elements, std::int64_t elements, std::uint64_t* words, int chunks,
                              std::uint64_t epoch) {
  for (int chunk = chunks - 1; chunk >= 0; --chunk) {
    for (int i = 0; i < 20; ++i) __nanosleep(1000);
    const std::int64_t begin = chunk * chunk_elements, end = min(begin + chunk_elements, elements);
    for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) to_k[i] = k[i], to_v[i] = v[i];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) sm90::ptx::store_release_system(words + chunk, epoch);
  }
}

TEST(Forward, waits_for_the_chunk_of_every_block) {
  const std::int64_t n = 2000, chunk = 300, chunks = (n + chunk - 1) / chunk;
  Problem p{{1, n, n, 4, 2, 128}, named("causal_document", n)};
  p.grid = 64;  // the producer needs room beside the kernel
  Call call(p);
  sm90::forward(call.arguments);
  const Result want = call.result();
  DeviceTensor<__nv_bfloat16> k(1, n, 2, 128), v(1, n, 2, 128);
  const DeviceBuffer<std::uint64_t> words(std::vector<std::uint64_t>(static_cast<std::size_t>(chunks), 0));
  call.arguments.k = k.view(), call.arguments.v = v.view();
  call.arguments.arrival = sm90::ChunkArrival{words.data(), 0, chunk, 5000};
  sm90::forward(call.arguments);  // epoch 0 is there already; loads both kernels before anything waits
  fake_producer<<<1, 256>>>(k.data(), v.data(), k.data(), v.data(), 0, 0, words.data(), 0, 0);
  require(cudaDeviceSynchronize(), "preload");
  cudaStream_t stream;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  for (std::uint64_t epoch = 1; epoch <= 10; ++epoch) {
    k.poison(), v.poison(), call.poison();
    require(cudaDeviceSynchronize(), "poison");
    call.arguments.arrival->epoch = epoch;
    sm90::forward(call.arguments);
    fake_producer<<<1, 256, 0, stream>>>(call.in.k.data(), call.in.v.data(), k.data(), v.data(), chunk * 2 * 128,
                                         n * 2 * 128, words.data(), static_cast<int>(chunks), epoch);
    const Result got = call.result();
    if (epoch > 1) {  // another order of the blocks rounds differently
      for (std::size_t i = 0; i < got.out.size(); ++i) ASSERT_NEAR(got.out[i], want.out[i], 0.04) << i;
      for (std::size_t i = 0; i < got.lse.size(); ++i) ASSERT_NEAR(got.lse[i], want.lse[i], 1e-4) << i;
    } else {
      expect_same(got, want);
    }
    call.arguments.arrival->first_local_column = 1200, call.arguments.arrival->end_local_column = 1800;
  }
  cudaStreamDestroy(stream);
}

TEST(Forward, a_chunk_that_never_comes_is_named_within_the_deadline) {
  const std::int64_t n = 1000;
  Call call({{1, n, n, 2, 2, 128}, named("full", n)});
  const DeviceBuffer<std::uint64_t> words(std::vector<std::uint64_t>{1, 1, 0, 1});
  call.arguments.arrival = sm90::ChunkArrival{words.data(), 1, 256, 50};
  sm90::forward(call.arguments);
  try {
    call.result();
    FAIL() << "the missing chunk went unnoticed";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::timeout);
    EXPECT_NE(std::string(e.what()).find("chunk 2"), std::string::npos) << e.what();
  }
  sm90::prepare_workspace(call.workspace.bytes.data(), nullptr);
  call.arguments.arrival.reset();
  sm90::forward(call.arguments);
  call.result();  // the workspace is whole again
}

TEST(Validate, names_what_is_wrong) {
  Call call(documents(300));
  const auto text = [&](auto&& change) {
    sm90::ForwardArguments a = call.arguments;
    change(a);
    try {
      sm90::validate(a);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(text([](auto&) {}), "");
  EXPECT_NE(text([](auto& a) { a.shape.head_dim = 100; }).find("head_dim"), std::string::npos);
  EXPECT_NE(text([](auto& a) { a.shape.kv_heads = 3; }).find("kv_heads"), std::string::npos);
  EXPECT_NE(text([](auto& a) { a.shape.rows = 301; }).find("301"), std::string::npos);
  EXPECT_NE(text([](auto& a) { a.workspace = nullptr; }).find("workspace"), std::string::npos);
  EXPECT_NE(text([](auto& a) { a.scale = -1.0F; }).find("scale"), std::string::npos);
  EXPECT_NE(text([](auto& a) { a.k.data = nullptr; }).find("k is null"), std::string::npos);
}

}  // namespace
}  // namespace flashmask::device
