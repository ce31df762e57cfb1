#include "flashmask/context_parallel.hpp"

#include "core/check.hpp"
#include "cpu/tiled.hpp"
#include "flashmask/localise.hpp"
#include "flashmask/tile.hpp"
#include "overlap/agreement.hpp"
#include "overlap/exchange.hpp"
#include "overlap/routes.hpp"
#include "overlap/tensors.hpp"

namespace flashmask {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

void check_problem(const ColumnMask& mask, const Plan& plan, const Communicator& communicator,
                   const ContextParallelShape& shape) {
  const MaskShape& m = mask.shape();
  core::check(plan.ranks() == communicator.size(), "the plan is for {} ranks but the communicator has {}", plan.ranks(),
              communicator.size());
  for (std::int32_t r = 0; r < communicator.size(); ++r) {
    core::check(plan.node_of_rank(r) == communicator.node_of(r),
                "rank {} is on node {} of the plan but on node {} of the communicator: plan with its number of nodes",
                r, plan.node_of_rank(r), communicator.node_of(r));
  }
  core::check(shape.batch == m.batch, "batch = {} but the mask has {} batch rows", shape.batch, m.batch);
  core::check(shape.head_dim >= 1 && shape.head_dim <= 256, "head_dim = {}: allowed are 1 to 256", shape.head_dim);
  core::check(shape.kv_heads >= 1 && shape.query_heads >= 1 && shape.query_heads % shape.kv_heads == 0,
              "query_heads = {} and kv_heads = {}: query heads must be a multiple of KV heads", shape.query_heads,
              shape.kv_heads);
  core::check(m.heads == 1 || m.heads == shape.kv_heads || m.heads == shape.query_heads,
              "the mask has {} heads: allowed are 1, kv_heads = {} and query_heads = {}", m.heads, shape.kv_heads,
              shape.query_heads);
}

std::shared_ptr<const overlap::Routes> build_routes(const ColumnMask& mask, const Plan& plan,
                                                    const ContextParallelOptions& options) {
  return overlap::Routes::build(mask, plan, options.prune ? overlap::Pruning::on : overlap::Pruning::off,
                                {options.routing, options.landing});
}

/// A rank without rows may pass null.
void check_pointer(const char* name, const void* data, std::int64_t rows) {
  core::check(data != nullptr || rows == 0, "{} is null but this rank has {} rows", name, rows);
}

void check_dtype(const char* name, DType dtype, DType wanted, bool float_too) {
  core::check(dtype == wanted || (float_too && dtype == DType::f32), "{} is {}: allowed is {}{}", name,
              to_string(dtype), to_string(wanted), float_too ? " or f32" : "");
}

}  // namespace

class ContextParallel::Impl {
 public:
  Impl(const ColumnMask& mask, const Plan& plan, Communicator& communicator, const ContextParallelShape& shape,
       const ContextParallelOptions& options, const std::shared_ptr<const overlap::Routes>& shared)
      : communicator_(communicator),
        rank_(communicator.rank()),
        shape_(shape),
        options_(options),
        plan_digest_(plan.digest()),
        token_{shape.kv_heads, shape.head_dim} {
    const std::uint64_t mask_digest = mask.digest();
    agree(mask_digest);  // first: what one rank alone got wrong would leave the others waiting
    routes_ = shared != nullptr ? shared : build_routes(mask, plan, options);
    check_problem(mask, plan, communicator, shape);
    check_routes(mask_digest);
    const auto elements = at(token_.elements());
    exchange_ = std::make_unique<overlap::Exchange>(communicator, routes_, elements * size_of(shape.dtype), elements);
    local_mask_ = localise(mask, RankRows{owners().columns, owners().chunk, own_chunks()}, needs().lists_of(rank_));
    constexpr std::int32_t kBlock = 64;
    map_ = TileMap::build(local_mask_, {kBlock, kBlock}, TileRule::exact);
    local_ = {shape.batch,   owners().local_rows(rank_), exchange_->slots().columns, shape.query_heads, shape.kv_heads,
              shape.head_dim};
    forward_hooks_ = hooks(exchange_->gather().visits[at(rank_)]);
    backward_hooks_ = hooks(exchange_->reduce().visits[at(rank_)]);
    backward_hooks_.gradients_complete = [this](std::int64_t b, std::int64_t begin, std::int64_t end) {
      for_each_chunk(b, begin, end, [&](std::int32_t c, std::int64_t columns) {
        exchange_->finish_columns(static_cast<std::int32_t>(b), c, columns);
      });
    };
  }

  void forward(const ForwardArguments& a) {
    for (const auto& [name, view] : {std::pair<const char*, TensorView>{"q", a.q}, {"k", a.k}, {"v", a.v}}) {
      check_pointer(name, view.data, local_.rows);
      check_dtype(name, view.dtype, shape_.dtype, false);
    }
    check_pointer("out", a.out.data, local_.rows);
    check_dtype("out", a.out.dtype, shape_.dtype, true);
    check_pointer("lse", a.lse, local_.rows);
    guarded([&] {
      exchange_->begin_call();
      gather(a.k, a.v);
      ForwardArguments call = a;
      call.shape = local_;
      call.mask = {&local_mask_, &map_};
      call.k = key_view(0);
      call.v = key_view(1);
      call.threads = options_.threads;
      cpu::forward(call, forward_hooks_);
      exchange_->end_call();
    });
    keys_kept_ = options_.keep_keys;
  }

  void backward(const BackwardArguments& a) {
    for (const auto& [name, view] :
         {std::pair<const char*, TensorView>{"q", a.q}, {"k", a.k}, {"v", a.v}, {"dout", a.dout}}) {
      check_pointer(name, view.data, local_.rows);
      check_dtype(name, view.dtype, shape_.dtype, false);
    }
    check_pointer("out", a.out.data, local_.rows);
    check_dtype("out", a.out.dtype, shape_.dtype, false);
    for (const auto& [name, view] :
         {std::pair<const char*, MutableTensorView>{"dq", a.dq}, {"dk", a.dk}, {"dv", a.dv}}) {
      check_pointer(name, view.data, local_.rows);
      check_dtype(name, view.dtype, shape_.dtype, true);
    }
    check_pointer("lse", a.lse, local_.rows);
    guarded([&] {
      exchange_->begin_call();
      if (!keys_kept_) gather(a.k, a.v);
      exchange_->start_reduce();
      BackwardArguments call = a;
      call.shape = local_;
      call.mask = {&local_mask_, &map_};
      call.k = key_view(0);
      call.v = key_view(1);
      call.dk = gradient_view(0);
      call.dv = gradient_view(1);
      call.threads = options_.threads;
      cpu::backward(call, backward_hooks_);
      exchange_->end_call();
      exchange_->await_sums();
      write_gradients(a.dk, a.dv);
    });
    keys_kept_ = false;
  }

  [[nodiscard]] PlannedTraffic planned() const {
    PlannedTraffic out;
    const auto key_bytes = token_.elements() * static_cast<std::int64_t>(size_of(shape_.dtype));
    const auto gradient_bytes = token_.elements() * static_cast<std::int64_t>(sizeof(float));
    const auto& gathered = routes_->gathered[at(rank_)];
    const auto& reduced = routes_->reduced[at(rank_)];
    for (std::size_t link = 0; link < kLinks; ++link) {
      out.gather_bytes[link] = gathered[link] * key_bytes;
      out.reduce_bytes[link] = reduced[link] * gradient_bytes;
    }
    for (const auto& list : needs().lists_of(rank_)) out.chunks_needed += static_cast<std::int64_t>(list.size());
    out.chunks_pruned = shape_.batch * owners().chunks() - out.chunks_needed;
    out.buffer_bytes = static_cast<std::int64_t>(exchange_->buffer_bytes());
    return out;
  }

  [[nodiscard]] std::int64_t local_rows() const { return local_.rows; }
  [[nodiscard]] std::uint64_t plan_digest() const { return plan_digest_; }

 private:
  [[nodiscard]] const overlap::Owners& owners() const { return routes_->owners; }
  [[nodiscard]] const overlap::RankNeeds& needs() const { return routes_->needs; }
  [[nodiscard]] const std::vector<std::int32_t>& own_chunks() const { return owners().chunks_of[at(rank_)]; }

  void agree(std::uint64_t mask_digest) const {
    const auto number = [](auto x) { return static_cast<std::uint64_t>(x); };
    const overlap::Field fields[] = {{"the plan's digest", plan_digest_},
                                     {"the mask's digest", mask_digest},
                                     {"batch", number(shape_.batch)},
                                     {"query_heads", number(shape_.query_heads)},
                                     {"kv_heads", number(shape_.kv_heads)},
                                     {"head_dim", number(shape_.head_dim)},
                                     {"dtype", number(shape_.dtype)},
                                     {"options.prune", number(options_.prune)},
                                     {"options.routing", number(options_.routing)},
                                     {"options.landing", number(options_.landing)},
                                     {"options.keep_keys", number(options_.keep_keys)}};
    overlap::check_agreement(communicator_, fields);
  }

  /// Shared routes must be those that this rank would have built.
  void check_routes(std::uint64_t mask_digest) const {
    core::check(routes_->mask_digest == mask_digest, "routes: they are of another mask; build them from this one");
    core::check(routes_->plan_digest == plan_digest_, "routes: they are of another plan; build them from this one");
    core::check((routes_->pruning == overlap::Pruning::on) == options_.prune &&
                    routes_->options.routing == options_.routing && routes_->options.landing == options_.landing,
                "routes: they were built with another options.prune, routing or landing; build them with these");
  }

  /// Calls f(chunk, columns) for every chunk that columns [begin, end) of the key buffer touch.
  template <typename F>
  void for_each_chunk(std::int64_t b, std::int64_t begin, std::int64_t end, const F& f) const {
    const auto& list = needs().chunks_of(rank_, static_cast<std::int32_t>(b));
    for (std::int64_t slot = begin / owners().chunk; slot < static_cast<std::int64_t>(list.size()); ++slot) {
      const std::int64_t first = slot * owners().chunk;  // only the last chunk of a list can be shorter
      const std::int64_t last = first + owners().rows_of(list[at(slot)]);
      if (first >= end) return;
      f(list[at(slot)], std::min(end, last) - std::max(begin, first));
    }
  }

  [[nodiscard]] cpu::Hooks hooks(const std::vector<std::vector<std::int32_t>>& visits) const {
    cpu::Hooks h;
    h.wait = [this](std::int64_t b, std::int64_t begin, std::int64_t end) {
      for_each_chunk(b, begin, end,
                     [&](std::int32_t c, std::int64_t) { exchange_->await_chunk(static_cast<std::int32_t>(b), c); });
    };
    h.column_counts = exchange_->slots().column_counts;
    if (options_.visit_order == VisitOrder::ascending) return h;
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      auto& order = h.order.emplace_back();
      for (const auto c : visits[at(b)]) {
        const std::int64_t begin = needs().slot(rank_, static_cast<std::int32_t>(b), c) * owners().chunk;
        order.push_back({begin, begin + owners().rows_of(c)});
      }
      const std::int64_t count = h.column_counts[at(b)];
      if (count < exchange_->slots().columns) order.push_back({count, exchange_->slots().columns});
    }
    return h;
  }

  void gather(TensorView k, TensorView v) {
    for (std::int32_t b = 0; b < shape_.batch; ++b) {
      std::int64_t row = 0;
      for (const auto c : own_chunks()) {
        const std::int64_t count = owners().rows_of(c);
        if (exchange_->slots().row_of[at(b)][at(c)] >= 0)
          overlap::pack(token_, k, v, b, row, count, exchange_->keys(b, c));
        row += count;
      }
    }
    exchange_->start_gather();
  }

  void write_gradients(MutableTensorView dk, MutableTensorView dv) {
    for (std::int32_t b = 0; b < shape_.batch; ++b) {
      std::int64_t row = 0;
      for (const auto c : own_chunks()) {
        const std::int64_t count = owners().rows_of(c);
        const bool seen = exchange_->slots().row_of[at(b)][at(c)] >= 0;
        overlap::unpack(token_, seen ? exchange_->gradients(b, c) : nullptr, dk, dv, b, row, count);
        row += count;
      }
    }
  }

  [[nodiscard]] TensorView key_view(std::int64_t part) {
    const auto skip = part * token_.elements() / 2 * static_cast<std::int64_t>(size_of(shape_.dtype));
    return {exchange_->keys() + skip, shape_.dtype, overlap::slot_strides(token_, local_.columns)};
  }
  [[nodiscard]] MutableTensorView gradient_view(std::int64_t part) {
    return {exchange_->gradients() + part * token_.elements() / 2, DType::f32,
            overlap::slot_strides(token_, local_.columns)};
  }

  /// What fails here must not leave the other ranks waiting.
  template <typename F>
  void guarded(const F& f) {
    try {
      f();
    } catch (const std::exception& e) {
      communicator_.cancel(e.what());
      throw;
    }
  }

  Communicator& communicator_;
  const std::int32_t rank_;
  const ContextParallelShape shape_;
  const ContextParallelOptions options_;
  const std::uint64_t plan_digest_;
  const overlap::TokenShape token_;
  std::shared_ptr<const overlap::Routes> routes_;
  std::unique_ptr<overlap::Exchange> exchange_;
  ColumnMask local_mask_;
  TileMap map_;
  AttentionShape local_;
  cpu::Hooks forward_hooks_, backward_hooks_;
  bool keys_kept_ = false;
};

ContextParallelRoutes::ContextParallelRoutes(const ColumnMask& mask, const Plan& plan,
                                             const ContextParallelOptions& options)
    : routes_(build_routes(mask, plan, options)) {}

ContextParallel::ContextParallel(const ColumnMask& mask, const Plan& plan, Communicator& communicator,
                                 const ContextParallelShape& shape, const ContextParallelOptions& options)
    : impl_(std::make_unique<Impl>(mask, plan, communicator, shape, options, nullptr)) {}
ContextParallel::ContextParallel(const ColumnMask& mask, const Plan& plan, Communicator& communicator,
                                 const ContextParallelShape& shape, const ContextParallelOptions& options,
                                 const ContextParallelRoutes& routes)
    : impl_(std::make_unique<Impl>(mask, plan, communicator, shape, options, routes.routes_)) {}
ContextParallel::ContextParallel(ContextParallel&&) noexcept = default;
ContextParallel& ContextParallel::operator=(ContextParallel&&) noexcept = default;
ContextParallel::~ContextParallel() = default;

std::int64_t ContextParallel::local_rows() const {
  return impl_->local_rows();
}
std::uint64_t ContextParallel::plan_digest() const {
  return impl_->plan_digest();
}
PlannedTraffic ContextParallel::planned() const {
  return impl_->planned();
}

void ContextParallel::forward(TensorView q, TensorView k, TensorView v, MutableTensorView out, float* lse,
                              std::optional<float> scale) {
  ForwardArguments a;
  a.q = q, a.k = k, a.v = v, a.out = out, a.lse = lse, a.scale = scale;
  impl_->forward(a);
}

void ContextParallel::backward(TensorView q, TensorView k, TensorView v, TensorView out, TensorView dout,
                               const float* lse, MutableTensorView dq, MutableTensorView dk, MutableTensorView dv,
                               std::optional<float> scale) {
  BackwardArguments a;
  a.q = q, a.k = k, a.v = v, a.out = out, a.dout = dout, a.lse = lse;
  a.dq = dq, a.dk = dk, a.dv = dv, a.scale = scale;
  impl_->backward(a);
}

}  // namespace flashmask
