// A GPU made of the reference: the backward in float32 with P and dS rounded to the tensors' type, as tensor cores have
// it (the forward's P is not normalised before it is rounded, which uniform weights do not notice: float64 stands in).
// Linked into a `flashmask` of its own, so that everything of --backend sm90 but the kernels is run without a GPU.
// FLASHMASK_FAKE_DAMAGE=out or dk spoils one element, which the command must find.
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "core/dtype.hpp"
#include "cpu/reference.hpp"
#include "sm90_engine.hpp"

namespace flashmask::app {
namespace {

namespace reference = cpu::reference;

void store(const MutableTensorView& to, const reference::Values& from) {
  auto* out = static_cast<std::uint16_t*>(to.data);
  for (std::size_t i = 0; i < from.values.size(); ++i) {
    const auto value = static_cast<float>(from.values[i]);
    out[i] = to.dtype == DType::bf16 ? core::float_to_bf16(value) : core::float_to_f16(value);
  }
}

/// Doubles or halves one element.
void damage(const char* name, const MutableTensorView& tensor) {
  const char* asked = std::getenv("FLASHMASK_FAKE_DAMAGE");
  if (asked != nullptr && std::string(asked) == name) static_cast<std::uint16_t*>(tensor.data)[40] ^= 0x0100;
}

}  // namespace

struct Sm90Engine::State {
  AttentionShape shape;
  std::optional<ColumnMask> mask;
  bool uploaded = false, forward_timed = false;
};

void require_sm90() {}

Sm90Engine::Sm90Engine(const AttentionShape& shape, DType) : state_(new State{shape, {}}) {}
Sm90Engine::~Sm90Engine() = default;
Sm90Engine::Sm90Engine(Sm90Engine&&) noexcept = default;
Sm90Engine& Sm90Engine::operator=(Sm90Engine&&) noexcept = default;

void Sm90Engine::set_mask(const ColumnMask& mask) {
  state_->mask = mask;
}

void Sm90Engine::forward(const ForwardArguments& arguments) {
  reference::Problem problem = reference::problem_of(arguments);
  problem.mask = &state_->mask.value();
  const reference::Forward result = reference::forward(problem, reference::Precision::float64, 2);
  store(arguments.out, result.out);
  for (std::size_t i = 0; i < result.lse.values.size(); ++i) {
    arguments.lse[i] = static_cast<float>(result.lse.values[i]);
  }
  damage("out", arguments.out);
}

void Sm90Engine::backward(const BackwardArguments& arguments) {
  reference::Problem problem = reference::problem_of(arguments);
  problem.mask = &state_->mask.value();
  const reference::Backward result = reference::backward(problem, reference::Precision::input, 2);
  store(arguments.dq, result.dq), store(arguments.dk, result.dk), store(arguments.dv, result.dv);
  damage("dk", arguments.dk);
}

double Sm90Engine::milliseconds() const {
  return 0.5;
}

void Sm90Engine::upload(TensorView, TensorView, TensorView, TensorView) {
  state_->uploaded = true;
}

Sm90Times Sm90Engine::time_forward(const Sm90Protocol& protocol) {
  if (!state_->uploaded || !state_->mask) std::abort();  // the order that the interface asks for
  state_->forward_timed = true;
  Sm90Times times{{}, {1.25, 1.25}};
  for (int i = 0; i < (protocol.repeats == 0 ? 9 : protocol.repeats); ++i) times.burst.push_back(1.0 + 0.01 * i);
  return times;
}

Sm90Times Sm90Engine::time_backward(const Sm90Protocol& protocol) {
  if (!state_->forward_timed) std::abort();
  return time_forward(protocol);
}

Sm90Report Sm90Engine::report() const {
  return {"fake GPU", "1.2.3", {192, 80}, {64, 128}, 0.02, 0.03};
}

}  // namespace flashmask::app
