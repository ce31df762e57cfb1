// The engine of a build without CUDA: require_sm90() refuses, so that nothing else is reached.
#include "core/check.hpp"
#include "sm90_engine.hpp"

namespace flashmask::app {
namespace {

[[noreturn]] void refuse() {
  core::fail(ErrorCode::unsupported,
             "--backend sm90: this build has no CUDA kernels; configure with cmake --preset cuda where nvcc is found "
             "and run on a Hopper GPU (H100, H200), or take --backend cpu");
}

}  // namespace

struct Sm90Engine::State {};

void require_sm90() {
  refuse();
}

Sm90Engine::Sm90Engine(const AttentionShape&, DType) {
  refuse();
}
Sm90Engine::~Sm90Engine() = default;
Sm90Engine::Sm90Engine(Sm90Engine&&) noexcept = default;
Sm90Engine& Sm90Engine::operator=(Sm90Engine&&) noexcept = default;

void Sm90Engine::set_mask(const ColumnMask&) {
  refuse();
}
void Sm90Engine::forward(const ForwardArguments&) {
  refuse();
}
void Sm90Engine::backward(const BackwardArguments&) {
  refuse();
}
double Sm90Engine::milliseconds() const {
  refuse();
}
void Sm90Engine::upload(TensorView, TensorView, TensorView, TensorView) {
  refuse();
}
Sm90Times Sm90Engine::time_forward(const Sm90Protocol&) {
  refuse();
}
Sm90Times Sm90Engine::time_backward(const Sm90Protocol&) {
  refuse();
}
Sm90Report Sm90Engine::report() const {
  refuse();
}

}  // namespace flashmask::app
