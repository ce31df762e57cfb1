// Sizes of the backward's workspace, the same on every GPU and known without one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flashmask/attention.hpp"

namespace flashmask::sm90::backward_pass {

inline constexpr std::int64_t counter_bytes = 16, stats_bytes = 512;  ///< the latter of a row tile

/// 64 or 128: what head_dim is padded to.
std::int32_t tile_head_dim(const AttentionShape& shape);
/// In how many parts the groups of a shape are split, `wanted` being 0 or a number asked for.
std::int32_t parts_of_shape(const AttentionShape& shape, std::int32_t wanted);

/// Where the parts of the workspace lie; offsets in bytes, each 256-byte aligned.
///
///   counters   16 bytes: work counter, error word, how many blocks wait
///   front      4 bytes a batch row and KV head (part of one, where groups are split); absent in deterministic mode
///   stats      512 bytes a row tile of 64 rows and query head: -LSE / scale and -rowsum(dO * O), float32
///   intervals  16 bytes a column (rounded up to 256) of every mask head of every batch row of the mask
///   dq_sum     float32 dQ, rows rounded up to 64 and head_dim to 64 or 128; absent in deterministic mode
///   part_sums  float32 dV and dK, columns rounded up to 256, of every part; absent where groups are not split
struct WorkspaceLayout {
  std::size_t counters, front, stats, intervals, dq_sum, part_sums, bytes;
};
/// `mask_matrices`: batch rows of the mask times its heads. `parts`: see BackwardCall.
WorkspaceLayout workspace_layout(const AttentionShape& shape, std::int64_t mask_matrices, bool deterministic,
                                 std::int32_t parts = 0);

}  // namespace flashmask::sm90::backward_pass
