// Whole calls of the backward on the host. The launch code is the library's, its kernels are functions that keep what
// they are launched with; then prepare, the drawing of blocks, their sweeps, the column role and combine are followed
// index by index. Every 64 columns of dK and dV must be written once in all, combine must read the sums of every part
// that saw something and of no other, the workspace must hold them, and chunks must reach their complete count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// What a device has and a host has not, before the headers that use it.
inline std::uint32_t atomicAdd(std::uint32_t* counter, std::uint32_t more) {
  return std::exchange(*counter, *counter + more);
}

#include "sm90/backward/convert.cuh"
#include "sm90/backward/launch.hpp"
#include "sm90/backward/prepare.cuh"
#include "sm90/backward/split.hpp"
#include "sm90/backward/sweep.hpp"
#include "sm90/backward/work_list.cuh"
#include "sm90/layout/tensor_map.hpp"
#include "support/random_mask.hpp"

namespace flashmask::sm90::backward_pass {

/// What the last call launched.
struct Launched {
  std::optional<PrepareParameters> prepare;
  std::optional<MainParameters> main;
  std::optional<CombineParameters> combine;
  std::int32_t blocks = 0, multiprocessors = 132;
  BackwardConfig config{};
  std::vector<std::string> loaded;  ///< kernels called without blocks
};
static Launched launched;

template <BackwardConfig C>
cudaError_t keep_main(const char* name, const MainParameters& p, std::int32_t blocks) {
  if (blocks == 0) launched.loaded.emplace_back(name);
  launched.main = p, launched.blocks = blocks, launched.config = C;
  return cudaSuccess;
}
#define KEEP_MAIN(name)                                                                   \
  cudaError_t launch_##name(const MainParameters& p, std::int32_t blocks, cudaStream_t) { \
    return keep_main<name>(#name, p, blocks);                                             \
  }
KEEP_MAIN(d128_bf16)
KEEP_MAIN(d128_f16)
KEEP_MAIN(d64_bf16)
KEEP_MAIN(d64_f16)
KEEP_MAIN(d128_bf16_paired)
KEEP_MAIN(d128_f16_paired)
KEEP_MAIN(d64_bf16_paired)
KEEP_MAIN(d64_f16_paired)
KEEP_MAIN(d128_bf16_deterministic)
KEEP_MAIN(d128_f16_deterministic)
KEEP_MAIN(d64_bf16_deterministic)
KEEP_MAIN(d64_f16_deterministic)
#define KEEP_COMBINE(name)                                                      \
  cudaError_t launch_combine_##name(const CombineParameters& p, cudaStream_t) { \
    if (p.extents.batch == 0) launched.loaded.emplace_back("combine_" #name);   \
    return launched.combine = p, cudaSuccess;                                   \
  }
KEEP_COMBINE(d128_bf16)
KEEP_COMBINE(d128_f16)
KEEP_COMBINE(d64_bf16)
KEEP_COMBINE(d64_f16)
#define PASS_ROWS(name)                                                    \
  cudaError_t launch_rows_##name(const RowParameters& p, cudaStream_t) {   \
    if (p.extents.batch == 0) launched.loaded.emplace_back("rows_" #name); \
    return cudaSuccess;                                                    \
  }
PASS_ROWS(d128_bf16)
PASS_ROWS(d128_f16)
PASS_ROWS(d64_bf16)
PASS_ROWS(d64_f16)
cudaError_t launch_prepare(const PrepareParameters& p, cudaStream_t) {
  if (p.extents.batch == 0) launched.loaded.emplace_back("prepare");
  return launched.prepare = p, cudaSuccess;
}
cudaError_t launch_convert(const ConvertParameters& p, cudaStream_t) {
  if (p.extents.batch == 0) {
    launched.loaded.push_back(std::string("convert_d") + (p.tile_head_dim == 64 ? "64" : "128") +
                              (p.bf16 ? "_bf16" : "_f16"));
  }
  return cudaSuccess;
}

}  // namespace flashmask::sm90::backward_pass

namespace flashmask::sm90::layout {
TileCopy encode_tile_copy(const char*, TensorView, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                          std::uint32_t, Halves) {
  return {{}, 1};
}
}  // namespace flashmask::sm90::layout

extern "C" {
cudaError_t cudaGetDevice(int* device) {
  return *device = 0, cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = flashmask::sm90::backward_pass::launched.multiprocessors, cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "an error";
}
const char* cudaGetErrorName(cudaError_t) {
  return "error";
}
}

namespace flashmask::sm90::backward_pass {
namespace {

using flashmask::testing::Random;
/// Batch row, KV head (of split extents: part), first of 64 columns.
using Piece = std::tuple<std::int32_t, std::int32_t, std::int32_t>;

template <typename T>
T pick(Random& random, std::initializer_list<T> choices) {
  return choices.begin()[random.integer(0, static_cast<std::int64_t>(choices.size()) - 1)];
}

/// A random call; its workspace is an address that nobody follows.
class Call {
 public:
  explicit Call(Random& random) : random_(random) {
    AttentionShape& s = call_.shape;
    const auto extent = [&](std::int64_t most) { return random.one_in(10) ? 0 : random.integer(1, most); };
    s = {.batch = random.one_in(12) ? 0 : random.integer(1, 3), .rows = extent(900), .columns = extent(1700)};
    s.kv_heads = random.integer(1, 4);
    s.query_heads = s.kv_heads * pick(random, {1, 2, 3, 4, 6, 8, 12});
    s.head_dim = pick(random, {8, 64, 72, 128});
    draw_lists(pick(random, {block_columns, 2 * block_columns}));
    call_.q.dtype = pick(random, {DType::bf16, DType::f16});
    call_.scale = 1;
    call_.deterministic = call_.map.block_n == block_columns && random.one_in(5);
    if (random.one_in(3)) call_.order = order_.data();
    if (random.one_in(2)) call_.signal = {&complete_, static_cast<std::int32_t>(random.integer(1, 700))};
    const auto group = static_cast<std::int32_t>(s.query_heads / s.kv_heads);
    call_.parts = random.one_in(4) ? 0 : static_cast<std::int32_t>(random.integer(1, group));
    while (call_.parts != 0 && group % call_.parts != 0) --call_.parts;
    call_.section_heads = static_cast<std::int32_t>(random.integer(0, 5));
    call_.light_percent = static_cast<std::int32_t>(random.integer(-1, 100));
    call_.shared_front = static_cast<std::int32_t>(random.integer(-1, 1));
  }

  void check() {
    launched = {};
    launched.multiprocessors = pick(random_, {2, 3, 132});
    queue_backward(call_, workspace_, nullptr);
    ASSERT_TRUE(launched.prepare.has_value());
    const AttentionShape& s = call_.shape;
    ASSERT_EQ(launched.main.has_value(), s.batch * s.columns * s.rows != 0);
    follow_prepare();
    if (launched.main) follow_main();
    if (launched.combine) follow_combine();
    for (std::int32_t b = 0; b < s.batch; ++b) {
      for (std::int32_t head = 0; head < s.kv_heads; ++head) {
        for (std::int32_t c = 0; c < s.columns; c += piece_columns) ASSERT_EQ(gradients_.count({b, head, c}), 1U) << c;
      }
    }
    if (call_.signal.done == nullptr) return;
    const std::int32_t width = call_.signal.chunk_columns;
    for (std::int64_t chunk = 0; chunk * width < s.columns; ++chunk) {
      ASSERT_EQ(counts_[chunk], complete_count(s, width, chunk)) << "chunk " << chunk;
    }
  }

  static inline std::int64_t split_pairs = 0, odd_pairs = 0, split_singles = 0, unseen_blocks = 0, blind_parts = 0;

 private:
  /// Column lists in all densities, none included, and an order of any kind.
  void draw_lists(std::int32_t width) {
    TileMapView& map = call_.map;
    const AttentionShape& s = call_.shape;
    const auto narrow = [](std::int64_t x) { return static_cast<std::int32_t>(x); };
    map.rows = narrow(s.rows), map.columns = narrow(s.columns);
    map.batch = random_.one_in(2) ? 1 : narrow(s.batch);
    map.heads = narrow(pick(random_, {std::int64_t{1}, s.kv_heads, s.query_heads}));
    map.block_m = block_rows, map.block_n = width;
    map.row_tiles = narrow((s.rows + block_rows - 1) / block_rows);
    map.column_blocks = narrow((s.columns + width - 1) / width);
    map.padded_columns = map.column_blocks * width;
    const std::int64_t emptiness = random_.integer(0, 4);
    for (std::int32_t list = 0; list < map.batch * map.heads * map.column_blocks; ++list) {
      begin_.push_back(narrow(static_cast<std::int64_t>(runs_.size())));
      const bool seen = map.row_tiles > 0 && random_.integer(0, 4) >= emptiness;
      for (std::int64_t tile = seen ? random_.integer(0, map.row_tiles - 1) : map.row_tiles; tile < map.row_tiles;) {
        const std::int64_t tiles = random_.integer(1, map.row_tiles - tile);
        runs_.push_back({narrow(tile), narrow(tiles), 2U, -1});
        tile += tiles + random_.integer(0, 3);
      }
      count_.push_back(narrow(static_cast<std::int64_t>(runs_.size())) - begin_.back());
    }
    order_.resize(count_.size());
    std::iota(order_.begin(), order_.end(), 0);
    for (std::size_t i = order_.size(); i > 1; --i) {
      std::swap(order_[i - 1], order_[static_cast<std::size_t>(random_.integer(0, static_cast<std::int64_t>(i) - 1))]);
    }
    map.column_runs = runs_.data(), map.column_run_begin = begin_.data(), map.column_run_count = count_.data();
    map.column_order = order_.data();
  }

  /// dK and dV of 64 columns leave the call for good.
  void write(std::int32_t batch, std::int32_t head, std::int32_t column) {
    if (column >= call_.shape.columns) return;
    ASSERT_TRUE(gradients_.insert({batch, head, column}).second) << "columns from " << column << " twice";
  }
  /// signal_block() by `warps` warps.
  void signal(const ChunkSignal& to, std::int32_t first_column, std::uint32_t warps) {
    if (to.done == nullptr || first_column >= call_.shape.columns) return;
    const std::int64_t last = std::min<std::int64_t>(first_column + block_columns, call_.shape.columns) - 1;
    for (std::int64_t c = first_column / to.chunk_columns; c <= last / to.chunk_columns; ++c) counts_[c] += warps;
  }
  [[nodiscard]] std::int64_t offset(const void* at) const {
    return static_cast<const std::byte*>(at) - static_cast<const std::byte*>(workspace_);
  }
  [[nodiscard]] WorkspaceLayout layout() const {
    const std::int64_t matrices = std::int64_t{call_.map.batch} * call_.map.heads;
    return workspace_layout(call_.shape, matrices, call_.deterministic, call_.parts);
  }

  /// clear_unseen() of prepare_kernel.cuh.
  void follow_prepare() {
    const Extents& e = launched.prepare->extents;
    if (launched.prepare->front != nullptr) {
      ASSERT_LE(offset(launched.prepare->front + launched.prepare->fronts), static_cast<std::int64_t>(layout().stats));
    }
    for (std::int32_t item = 0; item < e.batch * e.kv_heads * e.column_blocks; ++item) {
      const WorkBlock w{item / e.column_blocks / e.kv_heads, item / e.column_blocks % e.kv_heads,
                        item % e.column_blocks, 0};
      if (last_head(e, launched.prepare->lists, w) >= 0) continue;
      ++unseen_blocks;
      const std::int32_t first = w.block * e.work_columns;
      for (std::int32_t c = first; c < first + e.work_columns; c += piece_columns) write(w.batch, w.kv_head, c);
      for (std::int32_t c = first; c < first + e.work_columns; c += block_columns) {
        signal(launched.prepare->signal, c, column_warps);
      }
    }
  }

  void follow_main() {
    MainParameters& p = *launched.main;
    const Extents& e = p.extents;
    const bool paired = call_.map.block_n == 2 * block_columns;
    ASSERT_EQ(launched.config.paired, paired);
    ASSERT_EQ(launched.config.accumulate_dq, !call_.deterministic);
    ASSERT_EQ(p.parts > 1, launched.combine.has_value());
    if (p.front != nullptr) {
      ASSERT_EQ(launched.prepare->fronts, e.batch * e.kv_heads);
    }
    if (p.part_sums != nullptr) {
      const float* const end = p.part_sums + 2 * part_floats(e, launched.config.head_dim);
      ASSERT_LE(offset(end), static_cast<std::int64_t>(layout().bytes))
          << "the workspace ends before its sums of parts";
      ++(paired ? split_pairs : split_singles);
      odd_pairs += paired && (call_.shape.columns + block_columns - 1) / block_columns % 2 != 0 ? 1 : 0;
    }
    // As one CTA (or pair) draws them that is alone at work.
    std::uint32_t counter = 0;
    p.counter = &counter;
    const std::int32_t waiting = waiting_blocks(launched.prepare->extents, launched.prepare->lists);
    std::set<Piece> drawn;
    for (std::int32_t item = 0;;) {
      const WorkBlock w = next_block(p, waiting, item, 1);
      if (w.block < 0) break;
      ASSERT_TRUE(drawn.insert({w.batch, w.kv_head, w.block}).second) << "a block is drawn twice";
      follow_block(p, w);
      item = static_cast<std::int32_t>(1 + atomicAdd(p.counter, 1U));
    }
    for (std::int32_t item = 0; item < work_items(e); ++item) {
      const WorkBlock w = work_block(e, p.lists, waiting, item);
      ASSERT_EQ(drawn.count({w.batch, w.kv_head, w.block}), last_head(e, p.lists, w) >= 0 ? 1U : 0U);
    }
  }

  /// A work block: every tile once, of query heads of its own, then write_block() of every column warpgroup.
  void follow_block(const MainParameters& p, const WorkBlock& w) {
    const Extents& e = p.extents;
    const std::int32_t tiles = block_tiles(e, p.lists, w);
    const auto front = static_cast<std::uint32_t>(random_.integer(0, e.group() * e.row_tiles + 3));
    std::set<std::pair<std::int32_t, std::int32_t>> visited;
    sweep(e, p.lists, w, tiles, front, [&](std::int32_t head, std::int32_t tile, bool, std::int32_t) {
      visited.emplace(head, tile);
      const std::int32_t query_head = w.kv_head * e.group() + head;
      EXPECT_EQ(query_head / (call_.shape.query_heads / call_.shape.kv_heads), w.kv_head / p.parts);
    });
    ASSERT_EQ(static_cast<std::int32_t>(visited.size()), tiles);
    for (std::int32_t rank = 0; rank < launched.config.ctas(); ++rank) {
      const std::int32_t first = (w.block * launched.config.ctas() + rank) * block_columns;
      for (std::int32_t column = first; column < first + block_columns; column += piece_columns) {
        if (p.part_sums == nullptr) {
          write(w.batch, w.kv_head, column);
          continue;
        }
        const std::int64_t at = part_offset(e, launched.config.head_dim, w.batch, w.kv_head, column);
        ASSERT_TRUE(at >= 0 &&
                    at + piece_columns * launched.config.head_dim <= part_floats(e, launched.config.head_dim));
        ASSERT_TRUE(sums_.emplace(at, Piece{w.batch, w.kv_head, column}).second) << "two parts in one place";
      }
      signal(p.signal, first, column_warps);
    }
  }

  /// combine_kernel.
  void follow_combine() {
    const CombineParameters& p = *launched.combine;
    const Extents& e = p.extents;
    ASSERT_EQ(launched.main->signal.done, nullptr) << "dK and dV are complete in combine alone";
    const std::int32_t pieces = pieces_of_head(e), heads = e.kv_heads / p.parts;
    for (std::int32_t item = 0; item < e.batch * heads * pieces; ++item) {
      const std::int32_t column = item % pieces * piece_columns, head = item / pieces % heads;
      const std::int32_t batch = item / pieces / heads;
      bool seen = false;
      for (std::int32_t part = head * p.parts; part < (head + 1) * p.parts; ++part) {
        if (last_head(e, p.lists, {batch, part, column / e.work_columns, 0}) < 0) {
          ++blind_parts;
          continue;
        }
        seen = true;
        const auto sums = sums_.extract(part_offset(e, launched.config.head_dim, batch, part, column));
        ASSERT_TRUE(!sums.empty() && sums.mapped() == Piece(batch, part, column)) << "sums that nobody wrote";
      }
      if (!seen) continue;
      write(batch, head, column);
      signal(p.signal, column / block_columns * block_columns, column_warps / 2);
    }
    ASSERT_TRUE(sums_.empty()) << "sums that nobody read";
  }

  Random& random_;
  BackwardCall call_;
  std::vector<Run> runs_;
  std::vector<std::int32_t> begin_, count_, order_;
  std::uint32_t complete_ = 0;
  void* workspace_ = reinterpret_cast<void*>(std::uintptr_t{1} << 32);
  std::set<Piece> gradients_;
  std::map<std::int64_t, Piece> sums_;  // by offset, until they are read
  std::map<std::int64_t, std::uint32_t> counts_;
};

TEST(BackwardLaunch, every_gradient_is_written_once_whatever_the_call) {
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    Call(random).check();
    if (::testing::Test::HasFailure()) return;
  }
  for (const std::int64_t met : {Call::split_pairs, Call::odd_pairs, Call::split_singles}) EXPECT_GT(met, 200);
  EXPECT_GT(Call::unseen_blocks, 1000);
  EXPECT_GT(Call::blind_parts, 1000);
}

TEST(BackwardLaunch, load_kernels_calls_every_kernel_once_without_blocks) {
  launched = {};
  load_kernels();
  std::vector<std::string> every{"prepare"};
  for (const std::string instance : {"d64_f16", "d64_bf16", "d128_f16", "d128_bf16"}) {
    for (const char* form : {"", "_paired", "_deterministic"}) every.push_back(instance + form);
    for (const char* kernel : {"combine_", "rows_", "convert_"}) every.push_back(kernel + instance);
  }
  std::sort(every.begin(), every.end()), std::sort(launched.loaded.begin(), launched.loaded.end());
  EXPECT_EQ(launched.loaded, every);
}

}  // namespace
}  // namespace flashmask::sm90::backward_pass
