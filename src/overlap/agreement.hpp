// Ranks that were given different problems must hear it before anything moves.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "flashmask/communicator.hpp"

namespace flashmask::overlap {

struct Field {
  std::string_view name;
  std::uint64_t value = 0;
};

/// Collective. Throws invalid_argument on every rank, naming the first field that differs, the two ranks and their
/// values, unless all ranks give equal fields.
void check_agreement(Communicator& communicator, std::span<const Field> fields);

}  // namespace flashmask::overlap
