// A whole attention problem run on ranks: cuts every tensor by the plan, runs every rank, puts the results together.
#pragma once

#include <gtest/gtest.h>

#include "comm/local/world.hpp"
#include "flashmask/context_parallel.hpp"
#include "flashmask/dispatch.hpp"
#include "flashmask/error.hpp"
#include "overlap/plans.hpp"
#include "support/attention_call.hpp"

namespace flashmask::testing {

/// One rank's part of a Call, contiguous.
struct LocalCall {
  const Plan& plan;
  const std::int64_t rank;
  const AttentionShape global;
  Tensor q, k, v, dout, out, dq, dk, dv;
  std::vector<float> lse;

  LocalCall(const Call& call, const Plan& p, std::int64_t r) : plan(p), rank(r), global(call.shape) {
    const auto& s = call.shape;
    const auto rows = plan.rows_of(rank);
    const DType dtype = call.q.dtype();
    for (Tensor* t : {&q, &dout, &out, &dq}) *t = Tensor(s.batch, rows, s.query_heads, s.head_dim, dtype);
    for (Tensor* t : {&k, &v, &dk, &dv}) *t = Tensor(s.batch, rows, s.kv_heads, s.head_dim, dtype);
    lse.assign(static_cast<std::size_t>(s.batch * s.query_heads * rows), std::nanf(""));
    load(call);
  }

  /// Takes the rank's rows of the inputs.
  void load(const Call& call) {
    const auto rows = global_rows(plan, rank);
    const auto take = [&](const Tensor& from, Tensor& to) {
      to.for_each([&](auto b, auto i, auto h, auto d) { to.set(b, i, h, d, from.get(b, rows[i], h, d)); });
    };
    take(call.q, q), take(call.k, k), take(call.v, v), take(call.dout, dout);
  }

  /// Writes the rank's rows of the results; different ranks write different rows.
  void store(Call& call) const {
    const auto rows = global_rows(plan, rank);
    const auto give = [&](const Tensor& from, Tensor& to) {
      from.for_each([&](auto b, auto i, auto h, auto d) { to.set(b, rows[i], h, d, from.get(b, i, h, d)); });
    };
    give(out, call.out), give(dq, call.dq), give(dk, call.dk), give(dv, call.dv);
    for (std::int64_t b = 0; b < global.batch; ++b) {
      for (std::int64_t h = 0; h < global.query_heads; ++h) {
        for (std::size_t i = 0; i < rows.size(); ++i) {
          call.lse[static_cast<std::size_t>((b * global.query_heads + h) * global.rows + rows[i])] =
              lse[static_cast<std::size_t>(b * global.query_heads + h) * rows.size() + i];
        }
      }
    }
  }

  void forward(ContextParallel& context, std::optional<float> scale = {}) {
    context.forward(q.view(), k.view(), v.view(), out.view(), lse.data(), scale);
  }
  void backward(ContextParallel& context, std::optional<float> scale = {}) {
    context.backward(q.view(), k.view(), v.view(), out.view(), dout.view(), lse.data(), dq.view(), dk.view(), dv.view(),
                     scale);
  }
};

inline ContextParallelShape shape_of(const Call& call) {
  return {call.shape.batch, call.shape.query_heads, call.shape.kv_heads, call.shape.head_dim, call.q.dtype()};
}

/// Runs forward and backward of `call` on every rank of `world` and leaves the results in `call`. Afterwards every rank
/// must have sent exactly the bytes its schedule plans. `steps` repeats the pair. Returns what each rank planned.
inline std::vector<PlannedTraffic> run_on_ranks(Call& call, const Plan& plan, comm::LocalWorld& world,
                                                const ContextParallelOptions& options = {}, int steps = 1) {
  std::vector<PlannedTraffic> planned(static_cast<std::size_t>(plan.ranks()));
  comm::run_ranks_or_throw(world, [&](Communicator& communicator) {
    ContextParallel context(call.mask, plan, communicator, shape_of(call), options);
    LocalCall local(call, plan, communicator.rank());
    if (world.options().interleaver) {
      communicator.all_gather({}, {});
      if (communicator.rank() == 0) world.options().interleaver->explore();
    }
    for (int step = 0; step < steps; ++step) {
      local.forward(context, call.scale);
      local.backward(context, call.scale);
    }
    local.store(call);
    planned[static_cast<std::size_t>(communicator.rank())] = context.planned();
  });
  const int gathers = options.keep_keys ? steps : 2 * steps;
  for (std::int32_t r = 0; r < plan.ranks(); ++r) {
    const LinkCounters sent = world.sent(r).read();
    for (const Link link : {Link::inside, Link::between}) {
      const PlannedTraffic& p = planned[static_cast<std::size_t>(r)];
      const auto l = static_cast<std::size_t>(link);
      EXPECT_EQ(sent.bytes_of(Stage::gather, link), gathers * p.gather_bytes[l])
          << "rank " << r << ' ' << to_string(link);
      EXPECT_EQ(sent.bytes_of(Stage::reduce, link), steps * p.reduce_bytes[l])
          << "rank " << r << ' ' << to_string(link);
      EXPECT_EQ(sent.bytes_of(Stage::control, link), 0);
    }
  }
  return planned;
}

inline comm::LocalOptions world_options(const Plan& plan) {
  comm::LocalOptions options;
  options.ranks = static_cast<std::int32_t>(plan.ranks());
  options.nodes = static_cast<std::int32_t>(plan.nodes());
  options.deadline = std::chrono::seconds(120);
  return options;
}

}  // namespace flashmask::testing
