#include "cpu/isa/table.hpp"

namespace flashmask::cpu::isa {

const Kernels& avx2() {
  static constexpr Kernels table = make_table("avx2");
  return table;
}

}  // namespace flashmask::cpu::isa
