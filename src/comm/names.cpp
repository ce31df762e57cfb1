#include "flashmask/communicator.hpp"

namespace flashmask {

std::string_view to_string(Stage stage) {
  switch (stage) {
    case Stage::gather:
      return "gather";
    case Stage::reduce:
      return "reduce";
    case Stage::control:
      return "control";
  }
  return "unknown";
}

std::string_view to_string(Link link) {
  return link == Link::inside ? "inside a node" : "between nodes";
}

}  // namespace flashmask
