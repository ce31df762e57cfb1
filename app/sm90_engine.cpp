#include "sm90_engine.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "flashmask/sm90.hpp"
#include "sm90/device/memory.hpp"
#include "sm90/device/query.hpp"
#include "sm90/device/timing.hpp"

namespace flashmask::app {
namespace {

/// The mask's vectors with one batch row where all batch rows are alike, as most jobs have it: the kernels then order
/// their tiles by one list (docs/forward.md).
MaskShape shared_shape(const ColumnMask& mask) {
  MaskShape shape = mask.shape();
  const std::int64_t row = shape.heads * shape.columns;
  const MaskView view = mask.view();
  bool alike = true;
  for (const std::int32_t* vector : {view.lts, view.lte, view.uts, view.ute}) {
    for (std::int64_t b = 1; b < shape.batch; ++b) alike = alike && std::equal(vector, vector + row, vector + b * row);
  }
  if (alike && shape.batch > 1) shape.batch = 1;
  return shape;
}

std::size_t tensor_bytes(const AttentionShape& s, std::int64_t positions, std::int64_t heads, DType dtype) {
  return static_cast<std::size_t>(s.batch * positions * heads * s.head_dim) * size_of(dtype);
}

}  // namespace

void require_sm90() {
  sm90::require_device();
}

struct Sm90Engine::State {
  struct Pass {
    TileShape tile;
    std::optional<sm90::DeviceMask> map;
    double map_ms = 0;
  };

  AttentionShape shape;
  DType dtype;
  sm90::DeviceInfo device = sm90::require_device();
  sm90::Stream stream;
  sm90::DeviceMemory q, k, v, dout, out, dq, dk, dv, lse, forward_workspace, backward_workspace;
  std::array<sm90::DeviceMemory, 4> vectors;
  Pass forward, backward;
  double milliseconds = 0;

  State(const AttentionShape& s, DType type)
      : shape(s),
        dtype(type),
        q(tensor_bytes(s, s.rows, s.query_heads, type)),
        k(tensor_bytes(s, s.columns, s.kv_heads, type)),
        v(k.bytes()),
        dout(q.bytes()),
        out(q.bytes()),
        dq(q.bytes()),
        dk(k.bytes()),
        dv(k.bytes()),
        lse(static_cast<std::size_t>(s.batch * s.query_heads * s.rows) * sizeof(float)),
        forward_workspace(sm90::forward_workspace_bytes()) {
    sm90::prepare_workspace(forward_workspace.data(), stream.get());
  }

  [[nodiscard]] MutableTensorView rows_of(const sm90::DeviceMemory& memory) const {
    return {memory.data(), dtype, bshd_strides(shape.rows, shape.query_heads, shape.head_dim)};
  }
  [[nodiscard]] MutableTensorView columns_of(const sm90::DeviceMemory& memory) const {
    return {memory.data(), dtype, bshd_strides(shape.columns, shape.kv_heads, shape.head_dim)};
  }

  void classify(Pass& pass, TileShape tile, const MaskView& mask) {
    pass.tile = tile;
    pass.map.emplace(mask.shape, tile, shape);
    const auto refill = [&] { pass.map->refill(mask, stream.get()); };
    pass.map_ms = sm90::time_launches(stream, refill, 2).back();  // the first loads the kernels
  }

  void queue_forward(std::optional<float> scale) const {
    sm90::ForwardArguments a;
    a.shape = shape, a.map = &forward.map->view(), a.scale = scale;
    a.q = rows_of(q), a.k = columns_of(k), a.v = columns_of(v), a.out = rows_of(out);
    a.lse = static_cast<float*>(lse.data());
    a.workspace = forward_workspace.data(), a.stream = stream.get();
    sm90::forward(a);
  }
  void queue_backward(std::optional<float> scale) const {
    sm90::BackwardArguments a;
    a.shape = shape, a.map = &backward.map->view(), a.scale = scale;
    a.q = rows_of(q), a.k = columns_of(k), a.v = columns_of(v), a.out = rows_of(out), a.dout = rows_of(dout);
    a.lse = static_cast<const float*>(lse.data());
    a.dq = rows_of(dq), a.dk = columns_of(dk), a.dv = columns_of(dv);
    a.workspace = backward_workspace.data(), a.workspace_bytes = backward_workspace.bytes(), a.stream = stream.get();
    sm90::backward(a);
  }
  void check_forward() const { sm90::check_workspace(forward_workspace.data(), stream.get()); }
  void check_backward() const {
    if (backward_workspace.bytes() > 0) sm90::check_backward_workspace(backward_workspace.data(), stream.get());
  }
};

Sm90Engine::Sm90Engine(const AttentionShape& shape, DType dtype) : state_(std::make_unique<State>(shape, dtype)) {}
Sm90Engine::~Sm90Engine() = default;
Sm90Engine::Sm90Engine(Sm90Engine&&) noexcept = default;
Sm90Engine& Sm90Engine::operator=(Sm90Engine&&) noexcept = default;

void Sm90Engine::set_mask(const ColumnMask& mask) {
  State& s = *state_;
  const MaskShape shape = shared_shape(mask);
  const MaskView host = mask.view();
  const std::array<const std::int32_t*, 4> from{host.lts, host.lte, host.uts, host.ute};
  for (std::size_t i = 0; i < from.size(); ++i) {
    s.vectors[i] = sm90::DeviceMemory(static_cast<std::size_t>(shape.vector_size()) * sizeof(std::int32_t));
    s.vectors[i].upload(from[i], s.stream);
  }
  const auto vector = [&](std::size_t i) { return static_cast<const std::int32_t*>(s.vectors[i].data()); };
  const MaskView device{vector(0), vector(1), vector(2), vector(3), shape};
  s.classify(s.forward, sm90::choose_forward_tile(mask, s.shape), device);
  s.classify(s.backward, sm90::choose_backward_tile(mask, s.shape), device);
  s.backward_workspace = sm90::DeviceMemory(sm90::backward_workspace_bytes(s.shape, shape, false));
  s.stream.synchronise();
}

void Sm90Engine::forward(const ForwardArguments& a) {
  State& s = *state_;
  s.q.upload(a.q.data, s.stream), s.k.upload(a.k.data, s.stream), s.v.upload(a.v.data, s.stream);
  s.queue_forward(a.scale);
  s.out.poison(s.stream), s.lse.poison(s.stream);
  s.milliseconds = sm90::time_launches(
                       s.stream, [&] { s.queue_forward(a.scale); }, 1)
                       .front();
  s.check_forward();
  s.out.download(a.out.data, s.stream), s.lse.download(a.lse, s.stream);
  s.stream.synchronise();
}

void Sm90Engine::backward(const BackwardArguments& a) {
  State& s = *state_;
  for (const auto& [to, from] : {std::pair{&s.q, a.q}, {&s.k, a.k}, {&s.v, a.v}, {&s.out, a.out}, {&s.dout, a.dout}}) {
    to->upload(from.data, s.stream);
  }
  s.lse.upload(a.lse, s.stream);
  s.queue_backward(a.scale);
  for (const auto* memory : {&s.dq, &s.dk, &s.dv, &s.backward_workspace}) memory->poison(s.stream);
  s.milliseconds = sm90::time_launches(
                       s.stream, [&] { s.queue_backward(a.scale); }, 1)
                       .front();
  s.check_backward();
  s.dq.download(a.dq.data, s.stream), s.dk.download(a.dk.data, s.stream), s.dv.download(a.dv.data, s.stream);
  s.stream.synchronise();
}

double Sm90Engine::milliseconds() const {
  return state_->milliseconds;
}

void Sm90Engine::upload(TensorView q, TensorView k, TensorView v, TensorView dout) {
  State& s = *state_;
  s.q.upload(q.data, s.stream), s.k.upload(k.data, s.stream), s.v.upload(v.data, s.stream);
  s.dout.upload(dout.data, s.stream);
  s.stream.synchronise();
}

namespace {

Sm90Times time_pass(const sm90::Stream& stream, const std::function<void()>& launch, const Sm90Protocol& protocol) {
  Sm90Times times;
  times.burst = sm90::time_burst(stream, launch, protocol.warmups, protocol.repeats);
  const double fastest = *std::min_element(times.burst.begin(), times.burst.end());
  times.sustained = sm90::time_sustained(stream, launch, fastest);
  return times;
}

}  // namespace

Sm90Times Sm90Engine::time_forward(const Sm90Protocol& protocol) {
  const Sm90Times times = time_pass(
      state_->stream, [this] { state_->queue_forward({}); }, protocol);
  state_->check_forward();
  return times;
}

Sm90Times Sm90Engine::time_backward(const Sm90Protocol& protocol) {
  const Sm90Times times = time_pass(
      state_->stream, [this] { state_->queue_backward({}); }, protocol);
  state_->check_backward();
  return times;
}

Sm90Report Sm90Engine::report() const {
  const State& s = *state_;
  return {s.device.name, s.device.driver, s.forward.tile, s.backward.tile, s.forward.map_ms, s.backward.map_ms};
}

}  // namespace flashmask::app
