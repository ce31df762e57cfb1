// The device builder against its host mirror, bit by bit.
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "device/device_tensor.hpp"
#include "sm90/tile_map/device_map.hpp"
#include "sm90/tile_map/host_map.hpp"
#include "support/mask_families.hpp"

namespace flashmask::sm90 {
namespace {

using device::DeviceMaskVectors;
using device::require;
using flashmask::testing::MaskKind;
using flashmask::testing::pick;
using flashmask::testing::Random;
using flashmask::testing::random_family_mask;
using flashmask::testing::random_length;
using flashmask::testing::RawMask;

template <typename T>
std::vector<T> fetch(const T* from, std::int64_t n) {
  std::vector<T> to(static_cast<std::size_t>(n));
  if (n > 0) require(cudaMemcpy(to.data(), from, to.size() * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return to;
}

template <typename T>
std::vector<T> span_of(const T* from, std::int64_t n) {
  return std::vector<T>(from, from + n);
}

/// Runs and bitmaps that the lists refer to, list by list, and nothing else: initcheck can then tell unwritten memory
/// that matters. A null `bits` is that of column lists, which have no bitmaps.
void expect_equal_lists(const Run* got_runs, const Run* want, const std::vector<std::int32_t>& begin,
                        const std::vector<std::int32_t>& count, std::int64_t words, const std::uint64_t* bits,
                        const std::uint64_t* want_bits, const std::string& what) {
  for (std::size_t l = 0; l < begin.size(); ++l) {
    const std::vector<Run> got = fetch(got_runs + begin[l], count[l]);
    for (std::int32_t r = 0; r < count[l]; ++r) {
      const Run &g = got[r], &w = want[begin[l] + r];
      ASSERT_TRUE(g == w) << what << " list " << l << " run " << r << ": first " << g.first << " count " << g.count
                          << " classes " << g.classes << " bitmap " << g.bitmap << ", not " << w.first << ' ' << w.count
                          << ' ' << w.classes << ' ' << w.bitmap;
      if (g.bitmap < 0) continue;
      ASSERT_NE(bits, nullptr) << what;
      const std::int64_t base = std::int64_t{g.bitmap} * words;
      const std::vector<std::uint64_t> got_bits = fetch(bits + base, g.count * words);
      for (std::size_t t = 0; t < got_bits.size(); ++t) {
        ASSERT_EQ(got_bits[t], want_bits[base + t]) << what << " list " << l << " run " << r << " word " << t;
      }
    }
  }
}

void expect_equal(const DeviceTileMap& map, const HostTileMap& mirror, const std::string& what) {
  const TileMapView &d = map.view(), h = mirror.view();
  const std::int64_t matrices = std::int64_t{h.batch} * h.heads;
  const std::int64_t rows = matrices * h.row_tiles, columns = matrices * h.column_blocks;
  ASSERT_EQ(map.read_counts(nullptr), mirror.counts()) << what;
  const auto row_begin = fetch(d.row_run_begin, rows), row_count = fetch(d.row_run_count, rows);
  const auto column_begin = fetch(d.column_run_begin, columns), column_count = fetch(d.column_run_count, columns);
  ASSERT_EQ(row_begin, span_of(h.row_run_begin, rows)) << what;
  ASSERT_EQ(row_count, span_of(h.row_run_count, rows)) << what;
  ASSERT_EQ(column_begin, span_of(h.column_run_begin, columns)) << what;
  ASSERT_EQ(column_count, span_of(h.column_run_count, columns)) << what;
  ASSERT_EQ(fetch(d.row_order, rows), span_of(h.row_order, rows)) << what;
  ASSERT_EQ(fetch(d.column_order, columns), span_of(h.column_order, columns)) << what;
  const std::int64_t padded = matrices * h.padded_columns;
  ASSERT_EQ(fetch(d.lts, padded), span_of(h.lts, padded)) << what;
  ASSERT_EQ(fetch(d.lte, padded), span_of(h.lte, padded)) << what;
  ASSERT_EQ(fetch(d.uts, padded), span_of(h.uts, padded)) << what;
  ASSERT_EQ(fetch(d.ute, padded), span_of(h.ute, padded)) << what;
  ASSERT_EQ(d.packed_heads, h.packed_heads) << what;
  const std::int64_t words = std::int64_t{2} * h.block_m * h.packed_heads;
  ASSERT_NO_FATAL_FAILURE(
      expect_equal_lists(d.row_runs, h.row_runs, row_begin, row_count, words, d.bitmaps, h.bitmaps, what + " row"));
  ASSERT_NO_FATAL_FAILURE(expect_equal_lists(d.column_runs, h.column_runs, column_begin, column_count, words, nullptr,
                                             nullptr, what + " column"));
}

DeviceVectors pointers(const DeviceMaskVectors& v) {
  return {v.lts.data(), v.lte.data(), v.uts.data(), v.ute.data()};
}

void build_and_compare(const RawMask& mask, TileShape tile, const MapCapacity& capacity, const std::string& what,
                       const MapForm& form = {}, std::int32_t section = 0) {
  const DeviceMaskVectors vectors(mask.view());
  DeviceTileMap map(mask.shape, tile, {.capacity = capacity, .form = form, .section = section});
  map.refill(pointers(vectors), nullptr);
  ASSERT_NO_FATAL_FAILURE(expect_equal(map, HostTileMap::build(mask.view(), tile, capacity, {}, form, section), what));
}

TileShape draw_tile(Random& random) {
  return {pick(random, {64, 128, 192, 192}), pick(random, {64, 80, 80, 128, 256})};
}

std::string describe(int n, const MaskShape& s, TileShape t) {
  return "draw " + std::to_string(n) + ": batch " + std::to_string(s.batch) + " heads " + std::to_string(s.heads) +
         " rows " + std::to_string(s.rows) + " columns " + std::to_string(s.columns) + " tile " +
         std::to_string(t.block_m) + "x" + std::to_string(t.block_n);
}

TEST(DeviceTileMap, equals_the_host_mirror_bit_by_bit_on_2000_random_masks) {
  for (int n = 0; n < device::count_from_environment("FLASHMASK_DEVICE_DRAWS", 2000); ++n) {
    Random random(n);
    const MaskShape shape{random.integer(1, 2), random.integer(1, 3), random_length(random, 700),
                          random_length(random, 700)};
    const RawMask mask = random_family_mask(random, shape);
    const TileShape tile = draw_tile(random);
    MapCapacity capacity = default_capacity(shape, tile);
    if (n % 4 == 0) {  // too small now and then: every fallback is compared as well
      const auto some = [&](std::int32_t most) { return static_cast<std::int32_t>(random.integer(0, most / 2)); };
      capacity = {some(capacity.row_runs / 8 + 4), some(capacity.column_runs / 8 + 4), some(capacity.bitmaps / 2)};
    }
    ASSERT_NO_FATAL_FAILURE(build_and_compare(mask, tile, capacity, describe(n, shape, tile)));
  }
}

TEST(DeviceTileMap, equals_the_host_mirror_bit_by_bit_in_every_form) {
  for (int n = 0; n < device::count_from_environment("FLASHMASK_DEVICE_DRAWS", 500); ++n) {
    Random random(700000 + n);
    const MaskShape shape{random.integer(1, 2), random.integer(1, 3), random_length(random, 700),
                          n % 10 == 0 ? random.integer(20000, 30000) : random_length(random, 700)};
    const RawMask mask = random_family_mask(random, shape);
    MapForm form;
    form.packed_heads = pick(random, {1, 8, 8, 2, 16});
    form.rule = pick(random, {TileRule::minmax, TileRule::exact});
    TileShape tile = draw_tile(random);
    tile.block_m /= form.packed_heads;
    MapCapacity capacity = default_capacity(shape, tile, default_bitmap_bytes, form);
    if (n % 4 == 0) {
      capacity = {static_cast<std::int32_t>(random.integer(0, 40)), static_cast<std::int32_t>(random.integer(0, 40)),
                  static_cast<std::int32_t>(random.integer(0, 40))};
    }
    ASSERT_NO_FATAL_FAILURE(build_and_compare(mask, tile, capacity,
                                              describe(n, shape, tile) + " packed " +
                                                  std::to_string(form.packed_heads) +
                                                  (form.rule == TileRule::exact ? " exact" : ""),
                                              form, static_cast<std::int32_t>(random.integer(0, 3))));
  }
}

/// The last of 32 visible blocks in a row may reach beyond the last unit, by any number of units.
TEST(DeviceTileMap, closes_the_last_run_of_a_packed_list_whose_last_32_blocks_are_visible) {
  for (const std::int64_t blocks : {32, 64}) {
    for (std::int64_t columns = blocks * 80 - 81; columns <= blocks * 80 + 81; ++columns) {
      const MaskShape shape{1, 1, 50, columns};
      const RawMask mask(shape);  // hides nothing
      MapForm form;
      form.packed_heads = 8;
      const TileShape tile{24, 80};
      ASSERT_NO_FATAL_FAILURE(build_and_compare(mask, tile, default_capacity(shape, tile, default_bitmap_bytes, form),
                                                std::to_string(columns) + " columns", form, 0));
    }
  }
}

TEST(DeviceTileMap, equals_the_host_mirror_on_long_masks_with_many_lists) {
  for (int n = 0; n < 20; ++n) {
    Random random(5000 + n);
    const MaskShape shape{random.integer(1, 3), random.integer(1, 3), random_length(random, 40000),
                          random_length(random, 40000)};
    const RawMask mask = random_family_mask(random, shape);
    const TileShape tile = draw_tile(random);
    MapCapacity capacity = default_capacity(shape, tile);
    capacity.bitmaps = std::min(capacity.bitmaps, 600);
    ASSERT_NO_FATAL_FAILURE(build_and_compare(mask, tile, capacity, describe(n, shape, tile)));
  }
}

TEST(DeviceTileMap, masks_without_rows_or_columns_build) {
  for (const MaskShape shape : {MaskShape{1, 1, 0, 64}, MaskShape{1, 1, 64, 0}, MaskShape{0, 1, 64, 64}}) {
    ASSERT_NO_FATAL_FAILURE(build_and_compare(RawMask(shape), {64, 64}, {4, 4, 4}, "empty"));
  }
}

TEST(DeviceTileMap, null_vectors_hide_nothing_and_lts_alone_hides_to_the_end) {
  const MaskShape shape{1, 1, 300, 300};
  RawMask full(shape), lower(shape);
  for (std::int32_t j = 0; j < 300; ++j) full.set(j, {300, 0, 300, 0}), lower.set(j, {j, 300, 0, 0});
  const DeviceMaskVectors vectors(lower.view());
  const TileShape tile{192, 80};
  const MapCapacity capacity = default_capacity(shape, tile);
  DeviceTileMap map(shape, tile);
  map.refill({}, nullptr);
  ASSERT_NO_FATAL_FAILURE(expect_equal(map, HostTileMap::build(full.view(), tile, capacity), "no vector"));
  map.refill({.lts = vectors.lts.data()}, nullptr);
  ASSERT_NO_FATAL_FAILURE(expect_equal(map, HostTileMap::build(lower.view(), tile, capacity), "LTS alone"));
}

TEST(DeviceTileMap, a_captured_refill_replays_on_new_vectors_in_place) {
  const MaskShape shape{2, 2, 1000, 1000};
  const TileShape tile{192, 80};
  Random random(77);
  const RawMask first = random_family_mask(random, shape, MaskKind::causal_documents);
  DeviceMaskVectors vectors(first.view());
  DeviceTileMap map(shape, tile);
  const MapCapacity capacity = map.capacity();
  map.refill(pointers(vectors), nullptr);  // kernels are loaded before the capture
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  map.refill(pointers(vectors), stream);
  require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  require(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (const MaskKind kind : {MaskKind::causal, MaskKind::eviction, MaskKind::documents, MaskKind::all_dead}) {
    const RawMask next = random_family_mask(random, shape, kind);
    vectors.lts.upload(next.lts), vectors.lte.upload(next.lte), vectors.uts.upload(next.uts),
        vectors.ute.upload(next.ute);
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    require(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    ASSERT_NO_FATAL_FAILURE(expect_equal(map, HostTileMap::build(next.view(), tile, capacity), "replay"));
  }
  cudaGraphExecDestroy(executable), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
}

TEST(DeviceTileMap, repeated_refills_of_two_maps_on_two_streams_do_not_mix) {
  const MaskShape shape{1, 2, 2000, 2000};
  const TileShape tile{192, 80};
  Random random(78);
  const RawMask a = random_family_mask(random, shape, MaskKind::causal_documents);
  const RawMask b = random_family_mask(random, shape, MaskKind::eviction);
  const DeviceMaskVectors va(a.view()), vb(b.view());
  DeviceTileMap ma(shape, tile), mb(shape, tile);
  cudaStream_t sa, sb;
  require(cudaStreamCreateWithFlags(&sa, cudaStreamNonBlocking), "cudaStreamCreate");
  require(cudaStreamCreateWithFlags(&sb, cudaStreamNonBlocking), "cudaStreamCreate");
  for (int n = 0; n < device::count_from_environment("FLASHMASK_DEVICE_REPEATS", 1000); ++n)
    ma.refill(pointers(va), sa), mb.refill(pointers(vb), sb);
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  ASSERT_NO_FATAL_FAILURE(expect_equal(ma, HostTileMap::build(a.view(), tile, ma.capacity()), "stream a"));
  ASSERT_NO_FATAL_FAILURE(expect_equal(mb, HostTileMap::build(b.view(), tile, mb.capacity()), "stream b"));
  cudaStreamDestroy(sa), cudaStreamDestroy(sb);
}

}  // namespace
}  // namespace flashmask::sm90
