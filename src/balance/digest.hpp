// What two equal plans agree on.
#pragma once

#include <cstdint>

#include "flashmask/balance.hpp"

namespace flashmask::balancing {

/// The digest that plan files before version 4 carry: need sets enter it as one bit for every pair of chunks, which at
/// 65,536 chunks takes longer than planning them.
std::uint64_t plan_digest_before_4(const PlanRecord& record);

}  // namespace flashmask::balancing
