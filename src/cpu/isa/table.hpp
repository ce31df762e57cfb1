// Makes the table of one instruction set; included by one source file per set, which is compiled with its flags.
#pragma once

#include "cpu/isa/convert.hpp"
#include "cpu/isa/multiply.hpp"
#include "cpu/isa/softmax.hpp"
#include "cpu/kernels.hpp"

namespace flashmask::cpu::isa {
namespace {

constexpr Kernels make_table(const char* name) {
  return {name,
          kLanes,
          multiply,
          widen,
          widen_transposed,
          narrow_transposed,
          softmax,
          score_gradient_rows,
          score_gradient_columns,
          all_finite,
          lane_dots};
}

}  // namespace
}  // namespace flashmask::cpu::isa
