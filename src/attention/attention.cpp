#include "flashmask/attention.hpp"

#include "cpu/tiled.hpp"

namespace flashmask {

void forward(const ForwardArguments& arguments) {
  validate(arguments);
  cpu::forward(arguments);
}

void backward(const BackwardArguments& arguments) {
  validate(arguments);
  cpu::backward(arguments);
}

}  // namespace flashmask
