// Per query row: the constants of the backward, and dQ^T += K^T dS^T with lanes as in the forward.
#include <cmath>
#include <limits>
#include <memory>

#include "core/parallel_for.hpp"
#include "cpu/accumulate.hpp"
#include "cpu/backward.hpp"

namespace flashmask::cpu {
namespace {

struct Workspace {
  explicit Workspace(std::int64_t head_dim)
      : query(head_dim * kStrip),
        dout(head_dim * kStrip),
        dq(head_dim * kStrip),
        scores(kStrip * kStrip),
        dprob(kStrip * kStrip),
        key(kStrip * head_dim),
        value(kStrip * head_dim),
        clean(kStrip * head_dim),
        lse(kStrip),
        delta(kStrip),
        factor(kStrip) {}
  Buffer query, dout, dq;    // [head_dim][kStrip]
  Buffer scores, dprob;      // [columns of a piece][kStrip]
  Buffer key, value, clean;  // [kStrip][head_dim]
  Buffer lse, delta, factor;
};

void accumulate_piece(const BackwardCall& call, const RowStrip& strip, std::int64_t lanes, const ColumnRange& columns,
                      TileClass tile_class, Workspace& w) {
  const BackwardArguments& a = call.arguments;
  const std::int64_t head_dim = a.shape.head_dim;
  const std::int64_t count = columns.end - columns.begin;
  if (call.hooks.wait) call.hooks.wait(strip.batch, columns.begin, columns.end);
  const auto key =
      positions(call.kernels, a.k, strip.batch, strip.kv_head, columns.begin, count, head_dim, w.key.data());
  const auto value =
      positions(call.kernels, a.v, strip.batch, strip.kv_head, columns.begin, count, head_dim, w.value.data());
  call.kernels.multiply(count, lanes, head_dim, key.by_position(), w.query.data(), w.scores.data(), false);
  call.kernels.multiply(count, lanes, head_dim, value.by_position(), w.dout.data(), w.dprob.data(), false);
  const Intervals hidden = intervals(*a.mask.mask, strip.batch, strip.mask_head, columns.begin);
  const Piece piece{lanes, count, static_cast<std::int32_t>(strip.begin),
                    tile_class == TileClass::partial ? &hidden : nullptr, call.scale_log2};
  call.kernels.score_gradient_rows(piece, w.scores.data(), w.dprob.data(), w.lse.data(), w.delta.data());
  accumulate(call.kernels, piece, Lanes::rows, key, head_dim, w.scores.data(), w.dq.data(), w.clean);
}

void strip_gradient(const BackwardCall& call, const RowStrip& strip, Workspace& w) {
  const BackwardArguments& a = call.arguments;
  const std::int64_t head_dim = a.shape.head_dim;
  const std::int64_t rows = strip.end - strip.begin;
  const std::int64_t lanes = padded(rows, call.kernels);
  call.kernels.widen_transposed(strided(a.q, strip.batch, strip.begin, strip.query_head), rows, head_dim,
                                w.query.data(), lanes);
  call.kernels.widen_transposed(strided(a.dout, strip.batch, strip.begin, strip.query_head), rows, head_dim,
                                w.dout.data(), lanes);
  const std::int64_t first = call.row_index(strip.batch, strip.query_head, strip.begin);
  for (std::int64_t i = 0; i < lanes; ++i) {
    w.lse[i] = i < rows ? call.lse_log2[static_cast<std::size_t>(first + i)] : std::numeric_limits<float>::infinity();
    w.delta[i] = i < rows ? call.delta[static_cast<std::size_t>(first + i)] : 0;
    w.factor[i] = call.scale;
  }
  std::fill_n(w.dq.data(), head_dim * kStrip, 0.0F);
  for_each_column_piece(strip, *a.mask.mask, *call.map, call.orders,
                        [&](std::int64_t begin, std::int64_t end, TileClass tile_class) {
                          accumulate_piece(call, strip, lanes, {begin, end}, tile_class, w);
                        });
  call.kernels.narrow_transposed(w.dq.data(), w.factor.data(), rows, head_dim,
                                 strided(a.dq, strip.batch, strip.begin, strip.query_head));
}

}  // namespace

void compute_row_constants(BackwardCall& call) {
  const BackwardArguments& a = call.arguments;
  const AttentionShape& s = a.shape;
  const auto total = static_cast<std::size_t>(s.batch * s.query_heads * s.rows);
  call.lse_log2.resize(total);
  call.delta.resize(total);
  const std::int64_t strips = (s.rows + kStrip - 1) / kStrip;
  core::parallel_for(s.batch * s.query_heads * strips, call.threads, [&](std::int64_t task, int) {
    const std::int64_t batch = task / (s.query_heads * strips);
    const std::int64_t head = task / strips % s.query_heads;
    const std::int64_t begin = task % strips * kStrip;
    const std::int64_t rows = std::min(kStrip, s.rows - begin);
    const std::int64_t lanes = padded(rows, call.kernels);
    Buffer out(s.head_dim * kStrip);
    Buffer dout(s.head_dim * kStrip);
    Buffer delta(kStrip);
    call.kernels.widen_transposed(strided(a.out, batch, begin, head), rows, s.head_dim, out.data(), lanes);
    call.kernels.widen_transposed(strided(a.dout, batch, begin, head), rows, s.head_dim, dout.data(), lanes);
    call.kernels.lane_dots(lanes, s.head_dim, dout.data(), out.data(), delta.data());
    const std::int64_t first = call.row_index(batch, head, begin);
    for (std::int64_t i = 0; i < rows; ++i) {
      const float lse = a.lse[first + i];
      const bool dead = lse == -std::numeric_limits<float>::infinity();
      call.lse_log2[static_cast<std::size_t>(first + i)] =
          dead ? std::numeric_limits<float>::infinity() : static_cast<float>(static_cast<double>(lse) / kLn2);
      call.delta[static_cast<std::size_t>(first + i)] = dead ? 0.0F : delta[i];
    }
  });
}

void compute_row_gradients(const BackwardCall& call) {
  std::vector<std::unique_ptr<Workspace>> workspaces(static_cast<std::size_t>(call.threads));
  for_each_row_strip(call.arguments.shape, *call.map, call.threads, [&](const RowStrip& strip, int worker) {
    auto& workspace = workspaces[static_cast<std::size_t>(worker)];
    if (!workspace) workspace = std::make_unique<Workspace>(call.arguments.shape.head_dim);
    strip_gradient(call, strip, *workspace);
  });
}

}  // namespace flashmask::cpu
