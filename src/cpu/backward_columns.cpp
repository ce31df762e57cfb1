// Per block of key columns: dV^T += dO^T P and dK^T += Q^T dS over the rows that see it, for every query head of the KV
// head. Lanes are key columns, so their intervals are loaded once and Q and dO are read as they lie in memory.
#include <array>
#include <atomic>
#include <memory>
#include <numeric>

#include "core/parallel_for.hpp"
#include "cpu/accumulate.hpp"
#include "cpu/backward.hpp"

namespace flashmask::cpu {
namespace {

/// At most kStrip columns of one batch row inside one column block of the map.
struct ColumnBlock {
  std::int64_t batch, begin, end;
  std::int64_t cost;
};

struct Workspace {
  explicit Workspace(std::int64_t head_dim)
      : key(head_dim * kStrip),
        value(head_dim * kStrip),
        dk(head_dim * kStrip),
        dv(head_dim * kStrip),
        scores(kStrip * kStrip),
        dprob(kStrip * kStrip),
        query(kStrip * head_dim),
        dout(kStrip * head_dim),
        clean(kStrip * head_dim),
        scale(kStrip),
        one(kStrip) {}
  Buffer key, value, dk, dv;  // [head_dim][kStrip]
  Buffer scores, dprob;       // [rows of a piece][kStrip]
  Buffer query, dout, clean;  // [kStrip][head_dim]
  Buffer scale, one;          // factors of the results
  std::array<std::array<std::int32_t, kStrip>, 4> vectors{};
};

/// Blocks of every batch row in the caller's order (batch rows side by side), else the heaviest first.
std::vector<ColumnBlock> column_blocks(const BackwardCall& call) {
  const TileMap& map = *call.map;
  const std::int64_t block_n = map.tile_shape().block_n;
  std::vector<std::pair<std::int64_t, ColumnBlock>> ranked;  // rank inside the batch row
  for (std::int64_t batch = 0; batch < call.arguments.shape.batch; ++batch) {
    std::int64_t rank = 0;
    for (const ColumnRange& range : call.orders.ranges(batch)) {
      for (std::int64_t begin = range.begin; begin < range.end;) {
        const std::int64_t end = std::min({range.end, (begin / kStrip + 1) * kStrip, (begin / block_n + 1) * block_n});
        std::int64_t cost = 0;
        for (std::int64_t head = 0; head < map.mask_shape().heads; ++head) {
          for (const TileRun& run : map.column(batch, head, begin / block_n)) cost += run.count * (end - begin);
        }
        ranked.push_back({rank++, {batch, begin, end, cost}});
        begin = end;
      }
    }
  }
  const bool ordered = !call.hooks.order.empty();
  std::stable_sort(ranked.begin(), ranked.end(), [ordered](const auto& x, const auto& y) {
    return ordered ? x.first < y.first : x.second.cost > y.second.cost;
  });
  std::vector<ColumnBlock> blocks;
  blocks.reserve(ranked.size());
  for (const auto& [rank, block] : ranked) blocks.push_back(block);
  return blocks;
}

class BlockGradient {
 public:
  BlockGradient(const BackwardCall& call, const ColumnBlock& block, std::int64_t kv_head, Workspace& workspace)
      : call_(call),
        a_(call.arguments),
        block_(block),
        kv_head_(kv_head),
        w_(workspace),
        width_(block.end - block.begin),
        live_(std::clamp<std::int64_t>(call.orders.column_count(block.batch) - block.begin, 0, width_)),
        lanes_(padded(width_, call.kernels)) {}

  void run() {
    const std::int64_t head_dim = a_.shape.head_dim;
    std::fill_n(w_.dk.data(), head_dim * kStrip, 0.0F);
    std::fill_n(w_.dv.data(), head_dim * kStrip, 0.0F);
    const std::int64_t group = a_.shape.query_heads / a_.shape.kv_heads;
    for (std::int64_t h = kv_head_ * group; live_ > 0 && h < (kv_head_ + 1) * group; ++h) visit_head(h);
    for (std::int64_t n = 0; n < width_; ++n) {
      w_.scale[n] = n < live_ ? call_.scale : 0.0F;
      w_.one[n] = n < live_ ? 1.0F : 0.0F;
    }
    call_.kernels.narrow_transposed(w_.dk.data(), w_.scale.data(), width_, head_dim,
                                    strided(a_.dk, block_.batch, block_.begin, kv_head_));
    call_.kernels.narrow_transposed(w_.dv.data(), w_.one.data(), width_, head_dim,
                                    strided(a_.dv, block_.batch, block_.begin, kv_head_));
  }

 private:
  void visit_head(std::int64_t query_head) {
    const TileMap& map = *call_.map;
    const std::int64_t mask_head = query_head / (a_.shape.query_heads / map.mask_shape().heads);
    const auto runs = map.column(block_.batch, mask_head, block_.begin / map.tile_shape().block_n);
    if (runs.empty()) return;
    const bool coarse = is_coarse(map);
    load_vectors(mask_head);
    for_each_piece(runs, map.tile_shape().block_m, 0, a_.shape.rows,
                   [&](std::int64_t begin, std::int64_t end, TileClass tile_class) {
                     if (coarse && tile_class == TileClass::partial) {
                       tile_class = piece_class(*a_.mask.mask, block_.batch, mask_head, {begin, end},
                                                {block_.begin, block_.begin + live_});
                     }
                     if (tile_class == TileClass::masked) return;
                     if (!loaded_) load_keys();
                     accumulate_piece(query_head, begin, end, tile_class);
                   });
  }

  void load_keys() {
    if (call_.hooks.wait) call_.hooks.wait(block_.batch, block_.begin, block_.begin + live_);
    const std::int64_t head_dim = a_.shape.head_dim;
    call_.kernels.widen_transposed(strided(a_.k, block_.batch, block_.begin, kv_head_), live_, head_dim, w_.key.data(),
                                   lanes_);
    call_.kernels.widen_transposed(strided(a_.v, block_.batch, block_.begin, kv_head_), live_, head_dim,
                                   w_.value.data(), lanes_);
    loaded_ = true;
  }

  /// The block's intervals, padded with empty ones.
  void load_vectors(std::int64_t mask_head) {
    const Intervals source = intervals(*a_.mask.mask, block_.batch, mask_head, block_.begin);
    const std::array<const std::int32_t*, 4> from{source.lts, source.lte, source.uts, source.ute};
    for (std::size_t v = 0; v < 4; ++v) {
      std::fill(w_.vectors[v].begin(), w_.vectors[v].end(), 0);
      std::copy_n(from[v], live_, w_.vectors[v].begin());
    }
  }

  void accumulate_piece(std::int64_t query_head, std::int64_t begin, std::int64_t end, TileClass tile_class) {
    const Kernels& k = call_.kernels;
    const std::int64_t head_dim = a_.shape.head_dim;
    const std::int64_t count = end - begin;
    const auto query = positions(k, a_.q, block_.batch, query_head, begin, count, head_dim, w_.query.data());
    const auto dout = positions(k, a_.dout, block_.batch, query_head, begin, count, head_dim, w_.dout.data());
    k.multiply(count, lanes_, head_dim, query.by_position(), w_.key.data(), w_.scores.data(), false);
    k.multiply(count, lanes_, head_dim, dout.by_position(), w_.value.data(), w_.dprob.data(), false);
    const Intervals hidden{w_.vectors[0].data(), w_.vectors[1].data(), w_.vectors[2].data(), w_.vectors[3].data()};
    const auto first = call_.row_index(block_.batch, query_head, begin);
    const Piece piece{lanes_, count, static_cast<std::int32_t>(begin),
                      tile_class == TileClass::partial ? &hidden : nullptr, call_.scale_log2};
    k.score_gradient_columns(piece, w_.scores.data(), w_.dprob.data(), call_.lse_log2.data() + first,
                             call_.delta.data() + first);
    accumulate(k, piece, Lanes::columns, dout, head_dim, w_.scores.data(), w_.dv.data(), w_.clean);
    accumulate(k, piece, Lanes::columns, query, head_dim, w_.dprob.data(), w_.dk.data(), w_.clean);
  }

  const BackwardCall& call_;
  const BackwardArguments& a_;
  const ColumnBlock& block_;
  std::int64_t kv_head_;
  Workspace& w_;
  std::int64_t width_, live_, lanes_;
  bool loaded_ = false;
};

}  // namespace

void compute_column_gradients(const BackwardCall& call) {
  const std::int64_t kv_heads = call.arguments.shape.kv_heads;
  const std::vector<ColumnBlock> blocks = column_blocks(call);
  std::vector<std::atomic<std::int64_t>> heads_left(blocks.size());
  for (auto& left : heads_left) left.store(kv_heads, std::memory_order_relaxed);
  std::vector<std::unique_ptr<Workspace>> workspaces(static_cast<std::size_t>(call.threads));
  const auto tasks = static_cast<std::int64_t>(blocks.size()) * kv_heads;
  core::parallel_for(tasks, call.threads, [&](std::int64_t task, int worker) {
    auto& workspace = workspaces[static_cast<std::size_t>(worker)];
    if (!workspace) workspace = std::make_unique<Workspace>(call.arguments.shape.head_dim);
    const auto at = static_cast<std::size_t>(task / kv_heads);
    BlockGradient(call, blocks[at], task % kv_heads, *workspace).run();
    const bool last_head = heads_left[at].fetch_sub(1, std::memory_order_acq_rel) == 1;
    if (last_head && call.hooks.gradients_complete) {
      call.hooks.gradients_complete(blocks[at].batch, blocks[at].begin, blocks[at].end);
    }
  });
}

}  // namespace flashmask::cpu
