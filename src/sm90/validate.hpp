// The part of validation that workspace queries share with validate() of flashmask/sm90.hpp.
#pragma once

#include "flashmask/attention.hpp"

namespace flashmask::sm90 {

/// Throws invalid_argument or unsupported if no kernel of this room takes the shape.
void check_shape(const AttentionShape& shape);

}  // namespace flashmask::sm90
