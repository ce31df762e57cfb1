#include "cpu/backward.hpp"

#include "core/parallel_for.hpp"

namespace flashmask::cpu {

BackwardCall::BackwardCall(const BackwardArguments& a, const Hooks& h)
    : arguments(a),
      hooks(h),
      kernels(cpu::kernels()),
      map(a.mask),
      orders(h, a.shape),
      threads(core::thread_count(a.threads)),
      scale(scale_of(a.scale, a.shape)),
      scale_log2(scale * kLog2E) {}

void backward(const BackwardArguments& arguments, const Hooks& hooks) {
  BackwardCall call(arguments, hooks);
  compute_row_constants(call);
  compute_column_gradients(call);
  compute_row_gradients(call);
}

}  // namespace flashmask::cpu
