#include "cpu/isa/table.hpp"

namespace flashmask::cpu::isa {

const Kernels& baseline() {
  static constexpr Kernels table = make_table("baseline");
  return table;
}

}  // namespace flashmask::cpu::isa
