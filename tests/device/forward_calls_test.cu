// Forward calls as programs make them: again and again, on two streams, in graphs, while remote chunks still arrive.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "device/forward_harness.cuh"
#include "flashmask/error.hpp"
#include "sm90/ptx/fence.cuh"

namespace flashmask::device {
namespace {

struct Result {
  std::vector<double> out, lse;
};

/// A call whose tensors stay, to be launched again and again.
struct Call {
  using T = __nv_bfloat16;
  ColumnMask mask;
  ForwardCase<T> c;
  ForwardWorkspace workspace;
  sm90::ForwardArguments arguments;

  Call(const AttentionShape& shape, const ColumnMask& of, const ForwardSetup& setup = {})
      : mask(of), c(shape, mask.view(), 1, setup), arguments(c.arguments(workspace)) {
    c.mask.refill(c.vectors.view(), nullptr);
    require(cudaDeviceSynchronize(), "refill");
  }
  Result result() {
    sm90::check_workspace(workspace.bytes.data(), arguments.stream);
    return {c.out.download(), c.lse_values()};
  }
};

void expect_same(const Result& a, const Result& b) {
  EXPECT_TRUE(a.out == b.out);
  EXPECT_TRUE(a.lse == b.lse);
}

Call documents(std::int64_t n) {
  return {{1, n, n, 4, 4, 128}, named("share_question", n)};
}
Call packed_documents(std::int64_t n) {
  return {{1, n, n, 16, 2, 128}, named("share_question", n), {.tile = packed_tile(128)}};
}

void expect_repeats_equal(Call& call) {
  sm90::forward(call.arguments);
  const Result first = call.result();
  for (int i = 0; i < 100; ++i) {
    call.c.poison();
    sm90::forward(call.arguments);
    expect_same(call.result(), first);
  }
}

TEST(Forward, repeats_are_bitwise_equal) {
  Call plain = documents(1500), packed = packed_documents(500);
  expect_repeats_equal(plain);
  expect_repeats_equal(packed);
}

void expect_one_call_equal(Call& call, TileShape tile) {
  sm90::forward(call.arguments);
  const Result prebuilt = call.result();
  sm90::DeviceMask mask(call.mask.shape(), tile);
  call.c.poison();
  sm90::forward(call.arguments, mask, call.c.vectors.view());
  expect_same(call.result(), prebuilt);
}

TEST(Forward, a_call_that_brings_its_mask_equals_one_with_a_prebuilt_map) {
  Call plain = documents(1500), packed = packed_documents(1500);
  expect_one_call_equal(plain, sm90::forward_tile(128));
  expect_one_call_equal(packed, packed_tile(128));
}

TEST(Forward, two_streams_at_once_equal_serial_calls) {
  Call a = packed_documents(1500), b({2, 900, 900, 8, 2, 64}, named("causal", 900, 900, 2));
  sm90::forward(a.arguments);
  const Result serial_a = a.result();
  sm90::forward(b.arguments);
  const Result serial_b = b.result();
  cudaStream_t streams[2];
  for (cudaStream_t& s : streams) require(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreate");
  a.c.poison(), b.c.poison();
  require(cudaDeviceSynchronize(), "poison");
  a.arguments.stream = streams[0], b.arguments.stream = streams[1];
  for (int i = 0; i < 50; ++i) sm90::forward(a.arguments), sm90::forward(b.arguments);
  expect_same(a.result(), serial_a);
  expect_same(b.result(), serial_b);
  for (const cudaStream_t s : streams) cudaStreamDestroy(s);
}

void expect_graph_follows(const AttentionShape& shape, const ForwardSetup& setup) {
  const std::int64_t n = shape.rows;
  const masks::Packing one({masks::Document{16}}), three({masks::Document{5}, masks::Document{5}, masks::Document{6}});
  Call call(shape, masks::causal_document({1, 1, n, n}, one), setup);
  Call other(shape, masks::causal_document({1, 1, n, n}, three), setup);
  sm90::forward(call.arguments), sm90::forward(other.arguments);
  const Result want_one = call.result(), want_three = other.result();
  cudaStream_t stream;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  call.arguments.stream = stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
  call.c.mask.refill(call.c.vectors.view(), stream);
  sm90::forward(call.arguments);
  require(cudaStreamEndCapture(stream, &graph), "end capture");
  require(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  for (const bool changed : {false, true, false}) {
    const MaskView view = changed ? other.mask.view() : call.mask.view();
    for (const auto& [to, from] : {std::pair{call.c.vectors.lts.data(), view.lts},
                                   {call.c.vectors.lte.data(), view.lte},
                                   {call.c.vectors.uts.data(), view.uts},
                                   {call.c.vectors.ute.data(), view.ute}}) {
      require(cudaMemcpy(to, from, n * sizeof(std::int32_t), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    call.c.poison();
    require(cudaDeviceSynchronize(), "poison");
    require(cudaGraphLaunch(executable, stream), "replay");
    expect_same(call.result(), changed ? want_three : want_one);
  }
  cudaGraphExecDestroy(executable), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
}

TEST(Cases, A32_a_captured_graph_follows_a_mask_refilled_in_place) {
  expect_graph_follows({1, 16, 16, 2, 2, 128}, {});
  expect_graph_follows({1, 16, 16, 16, 2, 128}, {.tile = packed_tile(128)});
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

void expect_waits(std::int64_t query_heads, std::optional<TileShape> tile) {
  const std::int64_t n = 2000, chunk = 300, chunks = (n + chunk - 1) / chunk;
  // 64 CTAs: the producer needs room beside the kernel
  Call call({1, n, n, query_heads, 2, 128}, named("causal_document", n), {.grid = 64, .tile = tile});
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
    k.poison(), v.poison(), call.c.poison();
    require(cudaDeviceSynchronize(), "poison");
    call.arguments.arrival->epoch = epoch;
    sm90::forward(call.arguments);
    fake_producer<<<1, 256, 0, stream>>>(call.c.k.data(), call.c.v.data(), k.data(), v.data(), chunk * 2 * 128,
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

TEST(Forward, waits_for_the_chunk_of_every_block) {
  expect_waits(4, {});
  expect_waits(16, packed_tile(128));
}

TEST(Forward, a_chunk_that_never_comes_is_named_within_the_deadline) {
  const std::int64_t n = 1000;
  Call call({1, n, n, 2, 2, 128}, named("full", n));
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

}  // namespace
}  // namespace flashmask::device
