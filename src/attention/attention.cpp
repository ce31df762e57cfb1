#include "flashmask/attention.hpp"

#include "cpu/tiled.hpp"

namespace flashmask {

std::string_view to_string(Backend backend) {
  switch (backend) {
    case Backend::cpu:
      return "cpu";
    case Backend::sm90:
      return "sm90";
  }
  return "unknown";
}

void forward(const ForwardArguments& arguments) {
  validate(arguments);
  cpu::forward(arguments);
}

void backward(const BackwardArguments& arguments) {
  validate(arguments);
  cpu::backward(arguments);
}

}  // namespace flashmask
