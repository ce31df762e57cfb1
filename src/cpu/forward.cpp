// Forward: S^T = K Q^T, online softmax down the keys, O^T += V^T P^T. Lanes are query rows, so the maxima and sums of
// 16 rows are one vector and K and V are read as they lie in memory (docs/cpu.md).
#include <cmath>
#include <limits>
#include <memory>

#include "core/parallel_for.hpp"
#include "cpu/accumulate.hpp"
#include "cpu/row_strips.hpp"
#include "cpu/tiled.hpp"

namespace flashmask::cpu {
namespace {

struct Workspace {
  explicit Workspace(std::int64_t head_dim)
      : query(head_dim * kStrip),
        out(head_dim * kStrip),
        scores(kStrip * kStrip),
        key(kStrip * head_dim),
        value(kStrip * head_dim),
        clean(kStrip * head_dim),
        maximum(kStrip),
        sum(kStrip),
        factor(kStrip) {}
  Buffer query, out;         // [head_dim][kStrip]
  Buffer scores;             // [columns of a piece][kStrip]
  Buffer key, value, clean;  // [kStrip][head_dim]
  Buffer maximum, sum, factor;
};

class Forward {
 public:
  Forward(const ForwardArguments& arguments, const Hooks& hooks)
      : a_(arguments),
        hooks_(hooks),
        kernels_(kernels()),
        map_(arguments.mask),
        orders_(hooks, arguments.shape),
        scale_log2_(scale_of(arguments.scale, arguments.shape) * kLog2E),
        threads_(core::thread_count(arguments.threads)),
        workspaces_(static_cast<std::size_t>(threads_)) {}

  void run() {
    for_each_row_strip(a_.shape, *map_, threads_, [this](const RowStrip& strip, int worker) {
      auto& workspace = workspaces_[static_cast<std::size_t>(worker)];
      if (!workspace) workspace = std::make_unique<Workspace>(a_.shape.head_dim);
      attend(strip, *workspace);
    });
  }

 private:
  void attend(const RowStrip& strip, Workspace& w) const {
    const std::int64_t rows = strip.end - strip.begin;
    const std::int64_t lanes = padded(rows, kernels_);
    kernels_.widen_transposed(strided(a_.q, strip.batch, strip.begin, strip.query_head), rows, a_.shape.head_dim,
                              w.query.data(), lanes);
    for (std::int64_t i = 0; i < lanes; ++i) {
      w.maximum[i] = -std::numeric_limits<float>::infinity();
      w.sum[i] = 0;
    }
    std::fill_n(w.out.data(), a_.shape.head_dim * kStrip, 0.0F);
    for_each_column_piece(strip, *a_.mask.mask, *map_, orders_,
                          [&](std::int64_t begin, std::int64_t end, TileClass tile_class) {
                            visit(strip, lanes, begin, end, tile_class, w);
                          });
    finish(strip, rows, w);
  }

  void visit(const RowStrip& strip, std::int64_t lanes, std::int64_t begin, std::int64_t end, TileClass tile_class,
             Workspace& w) const {
    if (hooks_.wait) hooks_.wait(strip.batch, begin, end);
    const std::int64_t count = end - begin;
    const std::int64_t head_dim = a_.shape.head_dim;
    const auto key = positions(kernels_, a_.k, strip.batch, strip.kv_head, begin, count, head_dim, w.key.data());
    kernels_.multiply(count, lanes, head_dim, key.by_position(), w.query.data(), w.scores.data(), false);
    const Intervals hidden = intervals(*a_.mask.mask, strip.batch, strip.mask_head, begin);
    const Piece piece{lanes, count, static_cast<std::int32_t>(strip.begin),
                      tile_class == TileClass::partial ? &hidden : nullptr, scale_log2_};
    kernels_.softmax(piece, w.scores.data(), {w.maximum.data(), w.sum.data()}, w.out.data(), head_dim);
    const auto value = positions(kernels_, a_.v, strip.batch, strip.kv_head, begin, count, head_dim, w.value.data());
    accumulate(kernels_, piece, Lanes::rows, value, head_dim, w.scores.data(), w.out.data(), w.clean);
  }

  void finish(const RowStrip& strip, std::int64_t rows, Workspace& w) const {
    float* lse = a_.lse + (strip.batch * a_.shape.query_heads + strip.query_head) * a_.shape.rows + strip.begin;
    for (std::int64_t i = 0; i < rows; ++i) {
      const bool dead = w.sum[i] == 0;
      w.factor[i] = dead ? 0.0F : 1.0F / w.sum[i];
      lse[i] =
          dead ? -std::numeric_limits<float>::infinity()
               : static_cast<float>(static_cast<double>(w.maximum[i]) * kLn2 + std::log(static_cast<double>(w.sum[i])));
    }
    kernels_.narrow_transposed(w.out.data(), w.factor.data(), rows, a_.shape.head_dim,
                               strided(a_.out, strip.batch, strip.begin, strip.query_head));
  }

  const ForwardArguments& a_;
  const Hooks& hooks_;
  const Kernels& kernels_;
  MapOf map_;
  Orders orders_;
  float scale_log2_;
  int threads_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;
};

}  // namespace

void forward(const ForwardArguments& arguments, const Hooks& hooks) {
  Forward(arguments, hooks).run();
}

}  // namespace flashmask::cpu
