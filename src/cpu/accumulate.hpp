// The products that add P or dS times a tensor: what a hidden cell's 0 multiplies must not matter, even where it is
// NaN.
#pragma once

#include <cstdint>

#include "cpu/buffer.hpp"
#include "cpu/walk.hpp"

namespace flashmask::cpu {

/// What the lanes of a panel are; the positions of the tensor are the other axis.
enum class Lanes : std::uint8_t { rows, columns };

/// c[dim][lane] += sum over positions of tensor[position][dim] * weights[position][lane], for `piece.count` positions.
/// Hidden cells have weight 0 and add nothing, also where the tensor holds NaN or infinity there (padding nobody
/// initialised): in a partial piece such positions are taken out of the product and added cell by cell, for the lanes
/// that see them. Every other lane gets the bits it would get if the tensor were 0 there. `clean` has room for
/// [kStrip][head_dim] floats and is only written where something is not finite.
void accumulate(const Kernels& kernels, const Piece& piece, Lanes lanes, const Positions& tensor, std::int64_t head_dim,
                const float* weights, float* c, Buffer& clean);

}  // namespace flashmask::cpu
