#include "cpu/isa/table.hpp"

namespace flashmask::cpu::isa {

const Kernels& avx512() {
  static constexpr Kernels table = make_table("avx512");
  return table;
}

}  // namespace flashmask::cpu::isa
